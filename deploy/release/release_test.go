package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// sources returns a folder like the repository, with what is not built of it: the files of deploy, and pages instead of the manual.
func sources(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for _, name := range []string{"deploy/package", "deploy/systemd", "deploy/image", "deploy/openwrt"} {
		must(t, os.CopyFS(filepath.Join(top, name), os.DirFS(filepath.Join("../..", name))))
	}
	for _, name := range []string{"deploy/release/sizes", "LICENSE", "CHANGELOG.md", "README.md", "Corefile.example", "testdata/blocklist.txt"} {
		write(t, filepath.Join(top, name), read(t, filepath.Join("../..", name)))
	}
	for _, page := range []string{"man1/safebrowsing.1", "man7/coredns-safebrowsing.7"} {
		write(t, filepath.Join(top, "deploy/man", page), ".TH PAGE\n")
	}
	return top
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func open(t *testing.T, path string) io.Reader { return strings.NewReader(read(t, path)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal fails the test unless both are deeply equal. what says what they are.
func equal[T any](t *testing.T, what any, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got\n%+v\nwant\n%+v", what, got, want)
	}
}

// has fails the test unless a text, or what an error says, has each of the parts.
func has(t *testing.T, what, text any, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(fmt.Sprint(text), part) {
			t.Errorf("%v: expected %q in\n%v", what, part, text)
		}
	}
}

// unbuilt returns a release whose programs are there, without a build.
func unbuilt(t *testing.T, only string) *release {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	r, err := newRelease("v1.2.3", sources(t), filepath.Join(t.TempDir(), "dist"), only)
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(r.work) })
	for _, target := range r.targets {
		for _, program := range programs {
			write(t, r.binary(target, program), "program")
		}
	}
	return r
}

type member struct {
	*tar.Header
	text string
}

// contents returns the files of an archive, compressed or not, by their names.
func contents(t *testing.T, r io.Reader) map[string]*member {
	t.Helper()
	buffered := bufio.NewReader(r)
	r = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		zip, err := gzip.NewReader(buffered)
		must(t, err)
		r = zip
	}
	all := make(map[string]*member)
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		text, err := io.ReadAll(in)
		must(t, err)
		all[strings.TrimPrefix(h.Name, "./")] = &member{h, string(text)}
	}
}

func TestWhatIsNoVersionOrTargetIsRefused(t *testing.T) {
	source := sources(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	for _, tc := range []struct{ tag, only, want string }{
		{"1.2", "", "not a version such as"},
		{"latest", "", "not a version such as"},
		{"v1.2.3+build", "", "has build metadata"},
		{"v1.2.3", "plan9/amd64", `"plan9/amd64" is none of the targets darwin/arm64, `},
	} {
		_, err := newRelease(tc.tag, source, t.TempDir(), tc.only)
		has(t, tc.tag+" for "+tc.only, err, tc.want)
	}
	must(t, os.RemoveAll(filepath.Join(source, "deploy/man")))
	_, err := newRelease("v1.2.3", source, t.TempDir(), "")
	has(t, "without manual pages", err, "make man")
}

func TestAnArchiveHasProgramsPagesAndExamples(t *testing.T) {
	r := unbuilt(t, "linux/arm/6,darwin/arm64")
	for _, target := range r.targets {
		must(t, r.archive(target))
		files := contents(t, open(t, r.name(target, ".tar.gz")))
		top := strings.TrimSuffix(filepath.Base(r.name(target, ".tar.gz")), ".tar.gz") + "/"
		for name, mode := range map[string]int64{"coredns": 0o755, "safebrowsing": 0o755, "safebrowsing-relay": 0o755, "man/man1/safebrowsing.1": 0o644, "Corefile.example": 0o644, "testdata/blocklist.txt": 0o644, "LICENSE": 0o644} {
			if h := files[top+name]; h == nil || h.Mode != mode || !h.ModTime.Equal(r.time) || h.Uid != 0 || h.Uname != "" {
				t.Errorf("%s: expected %s with mode %o and the time of the release, got %+v", target, name, mode, h)
			}
		}
		equal(t, "it has units of systemd", files[top+"systemd/coredns-safebrowsing.service"] != nil, target.os == "linux")
	}
}

// The program tells its modules; here it is this test, which has this module's.
func TestTheBillNamesEachModuleOnce(t *testing.T) {
	r := unbuilt(t, "linux/amd64")
	for _, program := range programs {
		must(t, os.Remove(r.binary(r.targets[0], program)))
		must(t, os.Symlink("/proc/self/exe", r.binary(r.targets[0], program)))
	}
	must(t, r.bill(r.targets[0]))
	text := read(t, r.name(r.targets[0], ".spdx.json"))
	var doc spdxDocument
	must(t, json.Unmarshal([]byte(text), &doc))
	seen := make(map[string]bool)
	for _, p := range doc.Packages {
		equal(t, p.ID+" is there already", seen[p.ID], false)
		seen[p.ID] = true
	}
	for _, rel := range doc.Relationships {
		known := [2]bool{seen[rel.Related], seen[rel.Element] || rel.Type != "CONTAINS"}
		equal(t, "the bill has "+rel.Related+" and "+rel.Element, known, [2]bool{true, true})
	}
	for _, name := range []string{"stdlib", "aead.dev/minisign"} {
		found := slices.ContainsFunc(doc.Packages, func(p spdxPackage) bool { return p.Name == name && p.Version != "" })
		equal(t, name+" and its version are there", found, true)
	}
}

func TestChecksumsAreSigned(t *testing.T) {
	r := unbuilt(t, "linux/amd64")
	public, private, err := minisign.GenerateKey(nil)
	must(t, err)
	key, err := minisign.EncryptKey("secret", private)
	must(t, err)
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, string(key))
	t.Setenv("MINISIGN_KEY_FILE", file)
	write(t, filepath.Join(r.out, "a.deb"), "package")
	t.Setenv("MINISIGN_PASSWORD", "wrong")
	has(t, "a wrong password", r.checksums(), "MINISIGN_KEY_FILE")
	must(t, os.Remove(filepath.Join(r.out, "SHA256SUMS")))
	t.Setenv("MINISIGN_PASSWORD", "secret")
	must(t, r.checksums())
	sums, signature := []byte(read(t, filepath.Join(r.out, "SHA256SUMS"))), []byte(read(t, filepath.Join(r.out, "SHA256SUMS.minisig")))
	equal(t, "sums", string(sums), fmt.Sprintf("%x  a.deb\n", sha256.Sum256([]byte("package"))))
	equal(t, "the signature holds", minisign.Verify(public, sums, signature), true)
	equal(t, "it holds for more", minisign.Verify(public, append(sums, '\n'), signature), false)
}

// Two people who build a version get the same bytes: from two folders, in two time zones and with two umasks of their files.
func TestTwoReleasesAreEqualByteForByte(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs twice")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	var sums []string
	for i, zone := range []string{"UTC", "Asia/Tokyo"} {
		t.Setenv("TZ", zone)
		top := checkout(t, os.FileMode(0o644-i*0o040))
		write(t, filepath.Join(top, "deploy/man/man1/safebrowsing.1"), ".TH PAGE\n")
		out := filepath.Join(t.TempDir(), "dist")
		must(t, run("v1.2.3", top, out, "linux/amd64"))
		sums = append(sums, read(t, filepath.Join(out, "SHA256SUMS")))
		if i == 0 {
			checkPrograms(t, filepath.Join(out, "coredns-safebrowsing_1.2.3_linux_amd64.tar.gz"), "1.2.3")
		}
	}
	equal(t, "the second release", sums[1], sums[0])
	equal(t, "files", strings.Count(sums[0], "\n"), 7)
}

// Some set GOAMD64 for their own machine: an older one could not run the release.
func TestProgramsRunOnAnyProcessorWhoeverBuildsThem(t *testing.T) {
	if testing.Short() {
		t.Skip("builds for three processors")
	}
	r := &release{version: "1.2.3", source: t.TempDir(), work: t.TempDir()}
	write(t, filepath.Join(r.source, "go.mod"), "module example.org/small\n")
	write(t, filepath.Join(r.source, "main.go"), "package main\n\nfunc main() {}\n")
	for _, tc := range []struct{ arch, variable, mine, want string }{
		{"amd64", "GOAMD64", "v3", "v1"}, {"arm64", "GOARM64", "v9.0", "v8.0"}, {"386", "GO386", "softfloat", "sse2"},
	} {
		t.Setenv(tc.variable, tc.mine)
		program := filepath.Join(r.work, tc.arch)
		must(t, r.goBuild(target{os: "linux", arch: tc.arch}, program, "."))
		info, err := buildinfo.ReadFile(program)
		must(t, err)
		has(t, tc.arch, info.Settings, fmt.Sprint(debug.BuildSetting{Key: tc.variable, Value: tc.want}))
	}
}

// checkout copies the files that git knows, with a mode of their own.
func checkout(t *testing.T, mode os.FileMode) string {
	t.Helper()
	top := t.TempDir()
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("this is no checkout of git: %v", err)
	}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		content, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted
		}
		write(t, filepath.Join(top, name), string(content))
		must(t, os.Chmod(filepath.Join(top, name), mode))
	}
	return top
}
