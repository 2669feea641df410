package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/goreleaser/nfpm/v2"
)

// debOf returns the control files and the files of the .deb of the first target.
func debOf(t *testing.T, r *release) (control, data map[string]*member) {
	t.Helper()
	parts := make(map[string]map[string]*member)
	for in := ar.NewReader(open(t, r.packageName(r.targets[0], ".deb"))); ; {
		h, err := in.Next()
		if err == io.EOF {
			return parts["control.tar.gz"], parts["data.tar.gz"]
		}
		must(t, err)
		if name := strings.TrimSuffix(h.Name, "/"); strings.HasSuffix(name, ".tar.gz") {
			parts[name] = contents(t, in)
		}
	}
}

func TestADebHasConffilesScriptsAndUnits(t *testing.T) {
	r := unbuilt(t, "linux/arm/6,linux/mipsle")
	for _, target := range r.targets {
		must(t, r.packages(target))
	}
	if made, _ := filepath.Glob(filepath.Join(r.out, "*")); len(made) != 2 {
		t.Errorf("Expected a .deb and an .rpm of the first target only, got %v", made)
	}
	scripts, files := debOf(t, r)
	for name, wants := range map[string][]string{
		"control":   {"Package: coredns-safebrowsing\n", "Architecture: armhf\n", "Version: 1.2.3-1\n", "<coredns-safebrowsing@users.noreply.github.com>\n"},
		"conffiles": {"/etc/coredns-safebrowsing/Corefile\n", "/etc/coredns-safebrowsing/allow.txt\n"},
		"postinst":  nil, "prerm": nil, "postrm": nil,
	} {
		if scripts[name] == nil {
			t.Fatalf("Expected %s in the control files", name)
		}
		for _, want := range wants {
			if !strings.Contains(scripts[name].text, want) {
				t.Errorf("Expected %q in %s", want, name)
			}
		}
	}
	for name, mode := range map[string]int64{
		"usr/bin/coredns-safebrowsing": 0o755, "usr/bin/safebrowsing": 0o755, "usr/bin/safebrowsing-relay": 0o755, "etc/coredns-safebrowsing/Corefile": 0o644,
		"lib/systemd/system/coredns-safebrowsing.service": 0o644, "lib/systemd/system/safebrowsing-relay.service": 0o644, "usr/share/man/man1/safebrowsing.1": 0o644,
		"usr/share/doc/coredns-safebrowsing/CHANGELOG.md": 0o644, "usr/share/doc/coredns-safebrowsing/README.md": 0o644, "usr/share/doc/coredns-safebrowsing/Corefile.example": 0o644,
	} {
		if h := files[name]; h == nil || h.Mode&0o7777 != mode {
			t.Errorf("Expected %s with mode %o, got %+v", name, mode, h)
		}
	}
	if files["usr/bin/coredns"] != nil {
		t.Error("The package has the file of another package of CoreDNS")
	}
}

// Package managers take 1.2.3-rc.1 for newer than 1.2.3, and rpm does not take it at all.
func TestPackagesOfAPrereleaseAreOlderThanTheRelease(t *testing.T) {
	r := unbuilt(t, "linux/amd64")
	r.version = "1.2.3-rc.1"
	must(t, r.packages(r.targets[0]))
	routerPackages(t, r)
	deb, _ := debOf(t, r)
	ipk := contents(t, strings.NewReader(contents(t, open(t, r.openwrtName("x86_64", ".ipk")))["control.tar.gz"].text))
	apk := contents(t, open(t, r.openwrtName("x86_64", ".apk"))) // two archives, the first without an end
	for _, tc := range []struct{ name, text, want string }{
		{".deb", deb["control"].text, "Version: 1.2.3~rc.1-1\n"},
		{".rpm", read(t, r.packageName(r.targets[0], ".rpm")), "coredns-safebrowsing-1.2.3~rc.1-1"},
		{".ipk", ipk["control"].text, "Version: 1.2.3~rc.1"},
		{".apk", apk[".PKGINFO"].text, "pkgver = 1.2.3_rc1-r1\n"},
	} {
		if !strings.Contains(tc.text, tc.want) {
			t.Errorf("%s: expected %q in\n%.300q", tc.name, tc.want, tc.text)
		}
	}
}

// What a sysupgrade is to keep must be in the package, else it keeps nothing.
func TestPackagesOfOpenWrtHaveWhatASysupgradeKeeps(t *testing.T) {
	r := unbuilt(t, "linux/amd64+router")
	routerPackages(t, r)
	ipk := contents(t, strings.NewReader(contents(t, open(t, r.openwrtName("x86_64", ".ipk")))["data.tar.gz"].text))
	apk := contents(t, open(t, r.openwrtName("x86_64", ".apk")))
	for path := range strings.Lines(ipk["lib/upgrade/keep.d/coredns-safebrowsing"].text) {
		name := strings.Trim(path, "\n")[1:] // a folder ends with a slash
		if ipk[name] == nil || apk[name] == nil {
			t.Errorf("A package does not have %s", name)
		}
	}
	if f := apk["etc/uci-defaults/safebrowsing"]; f == nil || f.Mode&0o111 == 0 || !strings.Contains(apk["lib/apk/packages/coredns-safebrowsing.list"].text, "/etc/uci-defaults/safebrowsing\n") {
		t.Errorf("No boot runs the script, got %+v", f)
	}
}

// routerPackages writes the packages of all targets, of programs that are only names, and returns their architectures.
func routerPackages(t *testing.T, r *release) (archs []string) {
	t.Helper()
	for _, target := range r.routers {
		write(t, r.binary(target, routerTag), target.String())
		must(t, r.openwrt(target))
		if len(openwrtArchs[target.String()]) == 0 {
			t.Errorf("%s has no architecture of OpenWrt", target)
		}
		archs = append(archs, openwrtArchs[target.String()]...)
	}
	slices.Sort(archs)
	if len(slices.Compact(slices.Clone(archs))) != len(archs) {
		t.Errorf("Two programs are for one architecture: %s", archs)
	}
	return archs
}

// staticAndStripped says what a program needs of the system it runs on, or has that it need not.
func staticAndStripped(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		return errors.Join(fmt.Errorf("it needs the libraries %q", libraries), err)
	}
	for _, section := range []string{".interp", ".symtab", ".debug_info", ".zdebug_info"} {
		if f.Section(section) != nil {
			return fmt.Errorf("it has the section %s", section)
		}
	}
	return nil
}

// checkPrograms holds what a release says of its programs: one file is enough, and each knows its version.
func checkPrograms(t *testing.T, archive, version string) {
	t.Helper()
	folder, found := t.TempDir(), 0
	for name, f := range contents(t, open(t, archive)) {
		if f.Mode&0o111 == 0 {
			continue
		}
		found++
		path := filepath.Join(folder, filepath.Base(name))
		must(t, os.WriteFile(path, []byte(f.text), 0o755))
		if err := staticAndStripped(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
			continue
		}
		arg := map[string]string{"coredns": "-version", "safebrowsing": "version", "safebrowsing-relay": "-version"}[filepath.Base(path)]
		if out, err := exec.Command(path, arg).CombinedOutput(); err != nil || !strings.Contains(strings.ReplaceAll(string(out), ",", "\n"), "safebrowsing "+version+"\n") {
			t.Errorf("%s %s: expected the version %s, got %q, %v", path, arg, version, out, err)
		}
	}
	if found != len(programs) {
		t.Errorf("Expected the programs %q, got %d", programs, found)
	}
}

// apk-tools 3 is in no package of Debian: built from source, it runs this, too.
func TestApkInstallsUpgradesAndRemovesThePackage(t *testing.T) {
	program, err := exec.LookPath("apk")
	if err != nil || os.Getuid() != 0 {
		t.Skip("it needs apk, and root for the owners of files: ", err)
	}
	root := t.TempDir()
	apk := func(args ...string) {
		t.Helper()
		args = append([]string{"--root", root, "--arch", "mips_24kc", "--no-network", "--allow-untrusted", "--no-scripts"}, args...)
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("apk %q: %v\n%s", args, err, out)
		}
	}
	bundle := filepath.Join(t.TempDir(), "ca-bundle.apk")
	must(t, writePackage(&nfpm.Info{Name: "ca-bundle", Arch: "noarch", Platform: "linux", Version: "1", Description: "fake"}, "apk", bundle))
	apk("add", "--initdb", bundle)
	config := filepath.Join(root, openwrtConfig)
	for i, version := range []string{"v1.2.3-rc.1", "v1.2.3"} {
		r := unbuilt(t, "linux/mips+router")
		r.version = strings.TrimPrefix(version, "v")
		routerPackages(t, r)
		apk("add", r.openwrtName("mips_24kc", ".apk"))
		if got := read(t, filepath.Join(root, "usr/bin/coredns-safebrowsing")); got != "linux/mips" {
			t.Fatalf("%s: expected the program, got %q", version, got)
		}
		if got := read(t, config); i > 0 && got != "the operator's" {
			t.Errorf("Expected the upgrade to keep the configuration, got %q", got)
		}
		write(t, config, "the operator's")
	}
	apk("del", "coredns-safebrowsing")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/coredns-safebrowsing")); !os.IsNotExist(err) {
		t.Errorf("Expected the program to be removed, got %v", err)
	}
}
