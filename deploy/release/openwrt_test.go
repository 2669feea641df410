package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTargetsWithABuildTagAreOtherOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sizes")
	write(t, path, "linux/amd64 1\nlinux/arm/6 2\nlinux/amd64+router 3\nlinux/mips+router 4\nlinux/amd64+cluster 5\n")
	for _, tc := range []struct{ only, tag, want string }{
		{"", "", "[linux/amd64 linux/arm/6]"},
		{"", "router", "[linux/amd64 linux/mips]"},
		{"linux/amd64", "router", "[linux/amd64]"},
		{"linux/arm/6", "router", "[]"},
		{"linux/amd64+router", "router", "[linux/amd64]"},
		{"linux/amd64+router", "", "[]"},
	} {
		got, err := readTargets(path, tc.only, tc.tag)
		if err != nil || fmt.Sprint(got) != tc.want {
			t.Errorf("%q, %q: expected %s, got %v, %v", tc.only, tc.tag, tc.want, got, err)
		}
	}
}

// What the init script needs: the program, the user, scripts that start and stop it, and a folder
// for own lists that an upgrade of the firmware keeps.
var openwrtFiles = []string{"usr/bin/coredns-safebrowsing", "etc/init.d/safebrowsing", "etc/config/safebrowsing", "etc/capabilities/safebrowsing.json", "lib/upgrade/keep.d/coredns-safebrowsing"}

// routerPackages writes the packages of all targets, of programs that are only names, and returns
// their architectures.
func routerPackages(t *testing.T, r *release) (archs []string) {
	t.Helper()
	for _, target := range r.routers {
		write(t, r.binary(target, routerTag), target.String())
		if err := r.openwrt(target); err != nil {
			t.Fatal(err)
		}
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

func TestAPackageOfOpenWrtHasTheService(t *testing.T) {
	r := unbuilt(t, "")
	archs := routerPackages(t, r)
	for _, arch := range []string{"aarch64_cortex-a53", "arm_cortex-a7_neon-vfpv4", "arm_cortex-a15_neon-vfpv4", "arm_cortex-a9", "mips_24kc", "mipsel_24kc", "x86_64"} {
		if !slices.Contains(archs, arch) {
			t.Errorf("Expected a package for %s", arch)
		}
	}
	for _, arch := range archs {
		parts := texts(t, r.openwrtName(arch, ".ipk"))
		control, data := unpacked(t, parts["control.tar.gz"]), unpacked(t, parts["data.tar.gz"])
		for _, want := range []string{"Package: coredns-safebrowsing\n", "Architecture: " + arch + "\n", "Version: 1.2.3", "Depends: ca-bundle\n", "Require-User: safebrowsing=8530:safebrowsing=8530\n"} {
			if !strings.Contains(string(control["control"]), want) {
				t.Errorf("%s: expected %q in\n%s", arch, want, control["control"])
			}
		}
		if !strings.Contains(string(control["conffiles"]), "/etc/config/safebrowsing") {
			t.Errorf("%s: expected the configuration to be kept, got %s", arch, control["conffiles"])
		}
		for script, calls := range map[string]string{"postinst": "default_postinst", "prerm": "default_prerm"} {
			if !strings.Contains(string(control[script]), calls) {
				t.Errorf("%s: expected %s to call %s", arch, script, calls)
			}
		}
		for _, name := range openwrtFiles {
			if len(data[name]) == 0 {
				t.Errorf("%s: expected %s in the package", arch, name)
			}
		}
		if _, there := data["etc/safebrowsing/"]; !there {
			t.Errorf("%s: expected the folder for own lists", arch)
		}
	}
}

// texts returns the files of a compressed archive with their contents.
func texts(t *testing.T, path string) map[string][]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return unpacked(t, raw)
}

func unpacked(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[strings.TrimPrefix(h.Name, "./")], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// Neither the time zone, nor the clock, nor the modes of the files it is made of change a package.
func TestTwoPackagesOfOpenWrtAreEqual(t *testing.T) {
	var packages [2]string
	for i, zone := range []string{"UTC", "Asia/Tokyo"} {
		t.Setenv("TZ", zone)
		r := unbuilt(t, "linux/amd64+router")
		err := filepath.WalkDir(r.source, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return os.Chmod(path, os.FileMode(0o644-i*0o040))
		})
		if err != nil {
			t.Fatal(err)
		}
		routerPackages(t, r)
		for _, ending := range []string{".ipk", ".apk"} {
			raw, err := os.ReadFile(r.openwrtName("x86_64", ending))
			if err != nil {
				t.Fatal(err)
			}
			packages[i] += string(raw)
		}
		time.Sleep(1100 * time.Millisecond * time.Duration(1-i)) // a time in a file has seconds
	}
	if packages[0] != packages[1] {
		t.Error("Expected equal packages")
	}
}
