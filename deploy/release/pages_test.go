package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repositories is what deploy/pages/build has made of a release.
type repositories struct {
	t    *testing.T
	dist *release
	out  string
}

// output runs a program that must succeed.
func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// published makes the repositories of a small release, signed by keys that live as long as the test.
func published(t *testing.T) *repositories {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it makes keys and repositories")
	}
	for _, name := range []string{"apt-ftparchive", "createrepo_c", "gpg", "signify-openbsd", "apt-get"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	r := unbuilt(t, "linux/amd64,linux/arm64,linux/mipsle+router")
	for _, target := range r.targets {
		if err := r.packages(target); err != nil {
			t.Fatal(err)
		}
	}
	routerPackages(t, r)
	keys := t.TempDir()
	home := []string{"GNUPGHOME=" + filepath.Join(keys, "home")}
	if err := os.Mkdir(filepath.Join(keys, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { output(t, keys, home, "gpgconf", "--kill", "all") })
	output(t, keys, home, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "Test <test@example.com>", "ed25519", "sign", "0")
	secret := output(t, keys, home, "gpg", "--batch", "--quiet", "--armor", "--export-secret-keys")
	write(t, filepath.Join(keys, "gpg"), secret)
	output(t, keys, nil, "signify-openbsd", "-G", "-n", "-p", "usign.pub", "-s", "usign.sec")
	out := t.TempDir()
	output(t, "../..", []string{"PAGES_GPG_KEY_FILE=" + filepath.Join(keys, "gpg"), "PAGES_SIGNIFY_KEY_FILE=" + filepath.Join(keys, "usign.sec"), "PAGES_URL=file://" + out},
		"deploy/pages/build", r.out, out)
	return &repositories{t, r, out}
}

// apt runs apt-get with state of its own, for packages of an architecture.
func (p *repositories) apt(dir, arch string, args ...string) (string, error) {
	p.t.Helper()
	for _, name := range []string{"state/lists/partial", "cache/archives/partial", "etc/preferences.d"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	write(p.t, filepath.Join(dir, "status"), "")
	options := []string{"-q", "-o", "APT::Sandbox::User=root", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch,
		"-o", "Dir::State=" + filepath.Join(dir, "state"), "-o", "Dir::State::status=" + filepath.Join(dir, "status"), "-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=" + filepath.Join(dir, "sources"), "-o", "Dir::Etc::preferencesparts=" + filepath.Join(dir, "etc/preferences.d")}
	cmd := exec.Command("apt-get", append(options, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// apt downloads what the release has, by the file that the page offers; what was changed or signed by somebody else is
// refused.
func TestAptTakesThePackageOfTheRepository(t *testing.T) {
	p := published(t)
	sources, err := os.ReadFile(filepath.Join(p.out, "apt/coredns-safebrowsing.sources"))
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "sources/coredns-safebrowsing.sources"), string(sources))
		for _, args := range [][]string{{"update"}, {"download", "coredns-safebrowsing"}} {
			if out, err := p.apt(dir, arch, args...); err != nil || strings.Contains(out, "W:") {
				t.Fatalf("apt-get %q for %s: %v\n%s", args, arch, err, out)
			}
		}
		got, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
		if len(got) != 1 {
			t.Fatalf("Expected one package for %s, got %v", arch, got)
		}
		same(t, got[0], p.dist.packageName(p.dist.targets[i], ".deb"))
	}
	packages := filepath.Join(p.out, "apt/dists/stable/main/binary-amd64/Packages")
	raw, err := os.ReadFile(packages)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"a list of packages that was changed": func() {
			write(t, packages, strings.Replace(string(raw), "1.2.3", "1.2.4", 1))
			if err := os.Remove(packages + ".gz"); err != nil {
				t.Fatal(err)
			}
		},
		"a release without a signature": func() {
			if err := os.Remove(filepath.Join(p.out, "apt/dists/stable/InRelease")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		change()
		dir := t.TempDir()
		write(t, filepath.Join(dir, "sources/coredns-safebrowsing.sources"), string(sources))
		if out, err := p.apt(dir, "amd64", "update", "--error-on=any"); err == nil {
			t.Errorf("Expected apt to refuse %s:\n%s", name, out)
		}
	}
}

// same fails unless two files are equal.
func same(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s is not %s", got, want)
	}
}

// A signature covers the metadata, and the metadata the packages.
func TestRepositoriesOfRPMAndOpenWrtAreSigned(t *testing.T) {
	p := published(t)
	home := []string{"GNUPGHOME=" + t.TempDir()}
	t.Cleanup(func() { output(t, p.out, home, "gpgconf", "--kill", "all") })
	output(t, p.out, home, "gpg", "--batch", "--quiet", "--import", "key.asc")
	output(t, filepath.Join(p.out, "rpm/repodata"), home, "gpg", "--batch", "--verify", "repomd.xml.asc", "repomd.xml")
	primary, _ := filepath.Glob(filepath.Join(p.out, "rpm/repodata/*primary.xml.gz"))
	if len(primary) != 1 {
		t.Fatalf("Expected one list of packages, got %v", primary)
	}
	repomd, err := os.ReadFile(filepath.Join(p.out, "rpm/repodata/repomd.xml"))
	if err != nil {
		t.Fatal(err)
	}
	wantSum(t, string(repomd), primary[0])
	f, err := os.Open(primary[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	list, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range p.dist.targets {
		wantSum(t, string(list), p.dist.packageName(target, ".rpm"))
	}

	for _, arch := range openwrtArchs["linux/mipsle+router"] {
		folder := filepath.Join(p.out, "openwrt", arch)
		output(t, folder, nil, "signify-openbsd", "-V", "-q", "-p", filepath.Join(p.out, "openwrt.pub"), "-m", "Packages", "-x", "Packages.sig")
		list, err := os.ReadFile(filepath.Join(folder, "Packages"))
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"Package: coredns-safebrowsing\n", "Architecture: " + arch + "\n", "Filename: coredns-safebrowsing_1.2.3_openwrt_" + arch + ".ipk\n"} {
			if !strings.Contains(string(list), field) {
				t.Errorf("%s: the list of packages has no %q:\n%s", arch, field, list)
			}
		}
		wantSum(t, string(list), p.dist.openwrtName(arch, ".ipk"))
	}
}

// wantSum fails unless a list has the SHA-256 of a file.
func wantSum(t *testing.T, list, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(raw)); !strings.Contains(list, sum) {
		t.Errorf("the list does not have the checksum of %s", file)
	}
}

func TestRepositoriesAreNotMadeWithoutKeys(t *testing.T) {
	cmd := exec.Command("../pages/build", t.TempDir(), t.TempDir())
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "set PAGES_GPG_KEY_FILE to the file of the key") {
		t.Errorf("Expected the script to say what to set, got %v, %s", err, out)
	}
}
