package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	} {
		got, err := readTargets(path, tc.only, tc.tag)
		if err != nil || fmt.Sprint(got) != tc.want {
			t.Errorf("%q, %q: expected %s, got %v, %v", tc.only, tc.tag, tc.want, got, err)
		}
	}
}

// Each target of routers has an architecture of OpenWrt, and its package has what the init
// script needs: the program, the user, and scripts that start and stop it.
func TestAPackageOfOpenWrtHasTheService(t *testing.T) {
	r := unbuilt(t, "")
	if len(r.routers) == 0 {
		t.Fatal("Expected targets with the tag router")
	}
	for _, target := range r.routers {
		write(t, r.binary(target, routerTag), "program")
		if err := r.openwrt(target); err != nil {
			t.Fatal(err)
		}
		parts := texts(t, r.name(target, "_openwrt.ipk"))
		control, data := unpacked(t, parts["control.tar.gz"]), unpacked(t, parts["data.tar.gz"])
		arch, known := opkgArch[target.String()]
		for _, want := range []string{"Package: coredns-safebrowsing\n", "Architecture: " + arch + "\n", "Version: 1.2.3", "Depends: ca-bundle\n", "Require-User: safebrowsing=8530:safebrowsing=8530\n"} {
			if !known || !strings.Contains(string(control["control"]), want) {
				t.Errorf("%s: expected %q in\n%s", target, want, control["control"])
			}
		}
		if !strings.Contains(string(control["conffiles"]), "/etc/config/safebrowsing") {
			t.Errorf("%s: expected the configuration to be kept, got %s", target, control["conffiles"])
		}
		for script, calls := range map[string]string{"postinst": "default_postinst", "prerm": "default_prerm"} {
			if !strings.Contains(string(control[script]), calls) {
				t.Errorf("%s: expected %s to call %s", target, script, calls)
			}
		}
		for _, name := range []string{"usr/bin/coredns-safebrowsing", "etc/init.d/safebrowsing", "etc/config/safebrowsing", "etc/capabilities/safebrowsing.json"} {
			if len(data[name]) == 0 {
				t.Errorf("%s: expected %s in the package", target, name)
			}
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
		r := unbuilt(t, "linux/amd64")
		write(t, r.binary(r.routers[0], routerTag), "program")
		err := filepath.WalkDir(r.source, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return os.Chmod(path, os.FileMode(0o644-i*0o040))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.openwrt(r.routers[0]); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(r.name(r.routers[0], "_openwrt.ipk"))
		if err != nil {
			t.Fatal(err)
		}
		packages[i] = string(raw)
		time.Sleep(1100 * time.Millisecond * time.Duration(1-i)) // a time in a file has seconds
	}
	if packages[0] != packages[1] {
		t.Error("Expected two equal packages")
	}
}
