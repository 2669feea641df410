package main

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// programsOf unpacks the programs of an archive of a release, and returns their paths.
func programsOf(t *testing.T, archive string) (paths []string) {
	t.Helper()
	raw, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	zip, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if err == io.EOF {
			return paths
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode&0o111 == 0 {
			continue
		}
		path := filepath.Join(folder, filepath.Base(h.Name))
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
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

// checkPrograms holds what a release says of its programs: one file is enough, and each knows its
// version.
func checkPrograms(t *testing.T, archive, version string) {
	t.Helper()
	paths := programsOf(t, archive)
	if len(paths) != len(programs) {
		t.Errorf("Expected the programs %q, got %q", programs, paths)
	}
	for _, path := range paths {
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
}

func TestAProgramThatNeedsLibrariesIsNotStatic(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no shell to look at: ", err)
	}
	if err := staticAndStripped(shell); err == nil || !strings.Contains(err.Error(), "libc") {
		t.Errorf("Expected %s to need libc, got %v", shell, err)
	}
}
