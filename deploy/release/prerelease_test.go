package main

import (
	"os"
	"strings"
	"testing"
)

// Package managers take 1.2.3-rc.1 for newer than 1.2.3, and rpm does not take it at all.
func TestPackagesOfAPrereleaseAreOlderThanTheRelease(t *testing.T) {
	r := unbuilt(t, "linux/amd64")
	r.version = "1.2.3-rc.1"
	if err := r.packages(r.targets[0]); err != nil {
		t.Fatal(err)
	}
	routerPackages(t, r)
	deb, err := os.ReadFile(r.packageName(r.targets[0], ".deb"))
	if err != nil {
		t.Fatal(err)
	}
	// ar(5): a magic line, debian-binary with its header, and the header of control.tar.gz
	control := string(unpackedPart(t, deb[8+60+4+60:])["control"])
	rpm, err := os.ReadFile(r.packageName(r.targets[0], ".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	ipk := unpacked(t, texts(t, r.openwrtName("x86_64", ".ipk"))["control.tar.gz"])["control"]
	apk, _, _ := apkParts(t, r.openwrtName("x86_64", ".apk"))
	for _, tc := range []struct{ name, text, want string }{
		{".deb", control, "Version: 1.2.3~rc.1-1\n"},
		{".rpm", string(rpm), "coredns-safebrowsing-1.2.3~rc.1-1"},
		{".ipk", string(ipk), "Version: 1.2.3~rc.1"},
		{".apk", string(apk[".PKGINFO"]), "pkgver = 1.2.3_rc1-r1\n"},
	} {
		if !strings.Contains(tc.text, tc.want) {
			t.Errorf("%s: expected %q in\n%.300q", tc.name, tc.want, tc.text)
		}
	}
}
