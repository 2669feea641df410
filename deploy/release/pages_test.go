package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repositories is what deploy/pages/build has made of a release, and a web server that has them.
type repositories struct {
	t    *testing.T
	dist *release
	out  string
	url  string
}

// try runs a program, and output one that must succeed.
func try(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// published makes the repositories of a small release, signed by keys that live as long as the test.
func published(t *testing.T) *repositories {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it makes keys and repositories")
	}
	for _, name := range []string{"apt-ftparchive", "createrepo_c", "gpg", "signify-openbsd", "apt-get", "dnf"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	r := unbuilt(t, "linux/amd64,linux/arm64,linux/mipsle+router")
	for _, target := range r.targets {
		must(t, r.packages(target))
	}
	routerPackages(t, r)
	keys := t.TempDir()
	home := []string{"GNUPGHOME=" + filepath.Join(keys, "home")}
	must(t, os.Mkdir(filepath.Join(keys, "home"), 0o700))
	t.Cleanup(func() { output(t, keys, home, "gpgconf", "--kill", "all") })
	output(t, keys, home, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "Test <test@example.com>", "ed25519", "sign", "0")
	secret := output(t, keys, home, "gpg", "--batch", "--quiet", "--armor", "--export-secret-keys")
	write(t, filepath.Join(keys, "gpg"), secret)
	output(t, keys, nil, "signify-openbsd", "-G", "-n", "-p", "usign.pub", "-s", "usign.sec")
	out := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	t.Cleanup(server.Close)
	output(t, "../..", []string{"PAGES_GPG_KEY_FILE=" + filepath.Join(keys, "gpg"), "PAGES_SIGNIFY_KEY_FILE=" + filepath.Join(keys, "usign.sec"), "PAGES_URL=" + server.URL},
		"deploy/pages/build", r.out, out)
	return &repositories{t, r, out, server.URL}
}

// apt runs apt-get with state of its own, for packages of an architecture.
func (p *repositories) apt(dir, arch string, args ...string) (string, error) {
	p.t.Helper()
	for _, name := range []string{"state/lists/partial", "cache/archives/partial", "etc/preferences.d"} {
		must(p.t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	write(p.t, filepath.Join(dir, "status"), "")
	write(p.t, filepath.Join(dir, "sources/coredns-safebrowsing.sources"), read(p.t, filepath.Join(p.out, "apt/coredns-safebrowsing.sources")))
	options := []string{"-q", "-o", "APT::Sandbox::User=root", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch,
		"-o", "Dir::State=" + filepath.Join(dir, "state"), "-o", "Dir::State::status=" + filepath.Join(dir, "status"), "-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=" + filepath.Join(dir, "sources"), "-o", "Dir::Etc::preferencesparts=" + filepath.Join(dir, "etc/preferences.d")}
	return try(dir, nil, "apt-get", append(options, args...)...)
}

// apt downloads what the release has, by the file that the page offers; what was changed or signed by somebody else is refused.
func TestAptTakesThePackageOfTheRepository(t *testing.T) {
	p := published(t)
	for i, arch := range []string{"amd64", "arm64"} {
		dir := t.TempDir()
		for _, args := range [][]string{{"update"}, {"download", "coredns-safebrowsing"}} {
			out, err := p.apt(dir, arch, args...)
			equal(t, "apt-get is content: "+out, err == nil && !strings.Contains(out, "W:"), true)
		}
		same(t, filepath.Join(dir, "*.deb"), p.dist.packageName(p.dist.targets[i], ".deb"))
	}
	packages := filepath.Join(p.out, "apt/dists/stable/main/binary-amd64/Packages")
	write(t, packages, strings.Replace(read(t, packages), "1.2.3", "1.2.4", 1))
	for name, file := range map[string]string{"a list of packages that was changed": packages + ".gz", "a release without a signature": filepath.Join(p.out, "apt/dists/stable/InRelease")} {
		must(t, os.Remove(file))
		out, err := p.apt(t.TempDir(), "amd64", "update", "--error-on=any")
		equal(t, "apt refuses "+name+":\n"+out, err != nil, true)
	}
}

// dnf runs dnf with a root of its own, for packages of an architecture, without the scripts of a package: the root has no shell.
func (p *repositories) dnf(dir, arch string, args ...string) (string, error) {
	p.t.Helper()
	for _, name := range []string{"repos", "log"} {
		must(p.t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	write(p.t, filepath.Join(dir, "repos/coredns-safebrowsing.repo"), read(p.t, filepath.Join(p.out, "rpm/coredns-safebrowsing.repo")))
	write(p.t, filepath.Join(dir, "dnf.conf"), "")
	options := []string{"--config", filepath.Join(dir, "dnf.conf"), "--noplugins", "--installroot", filepath.Join(dir, "root"), "--releasever", "1", "--forcearch", arch,
		"--setopt=reposdir=" + filepath.Join(dir, "repos"), "--setopt=cachedir=" + filepath.Join(dir, "cache"), "--setopt=logdir=" + filepath.Join(dir, "log"),
		"--setopt=tsflags=noscripts", "--setopt=retries=1", "--assumeyes"}
	return try(dir, nil, "dnf", append(options, args...)...)
}

// dnf installs what the release has, by the file that the page offers; what was changed or signed by somebody else is refused.
func TestDnfTakesThePackageOfTheRepository(t *testing.T) {
	p := published(t)
	for i, arch := range []string{"x86_64", "aarch64"} {
		dir := t.TempDir()
		out, err := p.dnf(dir, arch, "install", "--setopt=keepcache=1", "coredns-safebrowsing")
		equal(t, "dnf installs: "+out, err == nil, true)
		same(t, filepath.Join(dir, "cache/*/packages/coredns-safebrowsing*.rpm"), p.dist.packageName(p.dist.targets[i], ".rpm"))
		equal(t, arch, read(t, filepath.Join(dir, "root/usr/bin/coredns-safebrowsing")), "program")
	}
	repomd, rpm := filepath.Join(p.out, "rpm/repodata/repomd.xml"), filepath.Base(p.dist.packageName(p.dist.targets[0], ".rpm"))
	for _, tc := range []struct{ name, file, from, to, want string }{
		{"a package that was changed", filepath.Join(p.out, "rpm", rpm), "program", "Program", "checksum"},
		{"a list of packages that was changed", repomd, "<revision>", "<revision>1", "Bad GPG signature"},
		{"a list of packages without a signature", repomd + ".asc", "", "", "GPG signature is not available"},
	} {
		raw := read(t, tc.file)
		if tc.from == "" {
			must(t, os.Remove(tc.file))
		} else {
			write(t, tc.file, strings.Replace(raw, tc.from, tc.to, 1))
		}
		out, err := p.dnf(t.TempDir(), "x86_64", "install", "coredns-safebrowsing")
		equal(t, "dnf refuses "+tc.name, err != nil, true)
		has(t, tc.name, out, tc.want)
		write(t, tc.file, raw)
	}
}

func same(t *testing.T, pattern, want string) {
	t.Helper()
	if got, _ := filepath.Glob(pattern); len(got) != 1 || read(t, got[0]) != read(t, want) {
		t.Errorf("Expected %s, and %q are there", want, got)
	}
}

func TestRepositoriesOfOpenWrtAreSigned(t *testing.T) {
	p := published(t)
	for _, arch := range openwrtArchs["linux/mipsle+router"] {
		folder := filepath.Join(p.out, "openwrt", arch)
		output(t, folder, nil, "signify-openbsd", "-V", "-q", "-p", filepath.Join(p.out, "openwrt.pub"), "-m", "Packages", "-x", "Packages.sig")
		list := read(t, filepath.Join(folder, "Packages"))
		has(t, arch, list, "Package: coredns-safebrowsing\n", "Architecture: "+arch+"\n", "Filename: coredns-safebrowsing_1.2.3_openwrt_"+arch+".ipk\n",
			fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, p.dist.openwrtName(arch, ".ipk"))))))
	}
}

func TestRepositoriesAreNotMadeWithoutKeys(t *testing.T) {
	out, err := try(".", nil, "../pages/build", t.TempDir(), t.TempDir())
	equal(t, "it fails", err != nil, true)
	has(t, "what to set", out, "set PAGES_GPG_KEY_FILE to the file of the key")
}

// An error of GitHub is no missing release: the site would be published without the repositories, and apt update would fail
// for all who use them.
func TestPagesWithoutAReleaseOnlyWhereThereIsNone(t *testing.T) {
	look := find(t, ".github/workflows/pages.yml", `^ +(gh release view.*)$`)
	for _, test := range []struct {
		gh, want string
		fails    bool
	}{
		{"echo v1.2.3", "v1.2.3\nit continues\n", false},
		{"echo release not found >&2; return 1", "release not found\n", false},
		{"echo HTTP 503 >&2; return 1", "HTTP 503\n", true},
	} {
		out, err := try(t.TempDir(), nil, "bash", "-e", "-c", "gh() { "+test.gh+"; }\n"+look+"\necho it continues")
		equal(t, test.gh, out, test.want)
		equal(t, test.gh, err != nil, test.fails)
	}
}
