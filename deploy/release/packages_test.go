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
	made, _ := filepath.Glob(filepath.Join(r.out, "*"))
	equal(t, "a .deb and an .rpm of the first target only", len(made), 2)
	scripts, files := debOf(t, r)
	for name, wants := range map[string][]string{
		"control":   {"Package: coredns-safebrowsing\n", "Architecture: armhf\n", "Version: 1.2.3-1\n", "<coredns-safebrowsing@users.noreply.github.com>\n"},
		"conffiles": {"/etc/coredns-safebrowsing/Corefile\n", "/etc/coredns-safebrowsing/allow.txt\n"},
		"postinst":  nil, "prerm": nil, "postrm": nil,
	} {
		equal(t, name+" is a control file", scripts[name] != nil, true)
		has(t, name, scripts[name].text, wants...)
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
	equal(t, "the file of another package of CoreDNS", files["usr/bin/coredns"], nil)
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
	has(t, ".deb", deb["control"].text, "Version: 1.2.3~rc.1-1\n")
	has(t, ".rpm", fmt.Sprintf("%.300q", read(t, r.packageName(r.targets[0], ".rpm"))), "coredns-safebrowsing-1.2.3~rc.1-1")
	has(t, ".ipk", ipk["control"].text, "Version: 1.2.3~rc.1")
	has(t, ".apk", apk[".PKGINFO"].text, "pkgver = 1.2.3_rc1-r1\n")
}

// What a sysupgrade is to keep must be in the package, else it keeps nothing.
func TestPackagesOfOpenWrtHaveWhatASysupgradeKeeps(t *testing.T) {
	r := unbuilt(t, "linux/amd64+router")
	routerPackages(t, r)
	ipk := contents(t, strings.NewReader(contents(t, open(t, r.openwrtName("x86_64", ".ipk")))["data.tar.gz"].text))
	apk := contents(t, open(t, r.openwrtName("x86_64", ".apk")))
	for path := range strings.Lines(ipk["lib/upgrade/keep.d/coredns-safebrowsing"].text) {
		name := strings.Trim(path, "\n")[1:] // a folder ends with a slash
		equal(t, "the packages have "+name, [2]bool{ipk[name] != nil, apk[name] != nil}, [2]bool{true, true})
	}
	equal(t, "a boot may run the script", apk["etc/uci-defaults/safebrowsing"].Mode&0o111 != 0, true)
	has(t, "files", apk["lib/apk/packages/coredns-safebrowsing.list"].text, "/etc/uci-defaults/safebrowsing\n")
	has(t, "files that an upgrade leaves", apk["lib/apk/packages/coredns-safebrowsing.conffiles"].text, openwrtConfig+"\n")
	equal(t, "the program", apk["usr/bin/coredns-safebrowsing"].text, r.routers[0].String())
}

// routerPackages writes the packages of all targets, of programs that are only names.
func routerPackages(t *testing.T, r *release) {
	t.Helper()
	var archs []string
	for _, target := range r.routers {
		write(t, r.binary(target, routerTag), target.String())
		must(t, r.openwrt(target))
		equal(t, target.String()+" has an architecture of OpenWrt", len(openwrtArchs[target.String()]) > 0, true)
		archs = append(archs, openwrtArchs[target.String()]...)
	}
	slices.Sort(archs)
	equal(t, "one program for each architecture", slices.Compact(slices.Clone(archs)), archs)
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
		must(t, staticAndStripped(path))
		if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
			continue
		}
		arg := map[string]string{"coredns": "-version", "safebrowsing": "version", "safebrowsing-relay": "-version"}[filepath.Base(path)]
		if out, err := exec.Command(path, arg).CombinedOutput(); err != nil || !strings.Contains(strings.ReplaceAll(string(out), ",", "\n"), "safebrowsing "+version+"\n") {
			t.Errorf("%s %s: expected the version %s, got %q, %v", path, arg, version, out, err)
		}
	}
	equal(t, fmt.Sprintf("programs %q", programs), found, len(programs))
}
