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
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2"
)

// apkParts returns the control files and the files of a package of apk, and the checksum of the
// second part, which the first one has.
func apkParts(t *testing.T, path string) (control, data map[string][]byte, sum string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rest := bytes.NewReader(raw)
	zip, err := gzip.NewReader(rest)
	if err != nil {
		t.Fatal(err)
	}
	zip.Multistream(false)
	if _, err := io.Copy(io.Discard, zip); err != nil {
		t.Fatal(err)
	}
	second := raw[len(raw)-rest.Len():]
	return unpackedPart(t, raw[:len(raw)-rest.Len()]), unpacked(t, second), fmt.Sprintf("%x", sha256.Sum256(second))
}

// unpackedPart reads a tar that has no end, since another one follows.
func unpackedPart(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	var end bytes.Buffer
	zip := gzip.NewWriter(&end)
	if _, err := zip.Write(make([]byte, 1024)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return unpacked(t, slices.Concat(raw, end.Bytes()))
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
	if err := writePackage(&nfpm.Info{Name: "ca-bundle", Arch: "noarch", Platform: "linux", Version: "1", Description: "fake"}, "apk", bundle); err != nil {
		t.Fatal(err)
	}
	apk("add", "--initdb", bundle)
	config := filepath.Join(root, openwrtConfig)
	for i, version := range []string{"v1.2.3-rc.1", "v1.2.3"} {
		r := unbuilt(t, "linux/mips+router")
		r.version = strings.TrimPrefix(version, "v")
		routerPackages(t, r)
		apk("add", r.openwrtName("mips_24kc", ".apk"))
		if got, err := os.ReadFile(filepath.Join(root, "usr/bin/coredns-safebrowsing")); string(got) != "linux/mips" {
			t.Fatalf("%s: expected the program, got %q, %v", version, got, err)
		}
		if got, err := os.ReadFile(config); i > 0 && string(got) != "the operator's" {
			t.Errorf("Expected the upgrade to keep the configuration, got %q, %v", got, err)
		}
		write(t, config, "the operator's")
	}
	apk("del", "coredns-safebrowsing")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/coredns-safebrowsing")); !os.IsNotExist(err) {
		t.Errorf("Expected the program to be removed, got %v", err)
	}
}
