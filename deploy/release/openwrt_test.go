package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

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
