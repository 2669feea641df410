package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// On NFS a full disk is told when the file is closed.
func TestAFileWhoseCloseFailsReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "allow.txt")
	write(t, path, "a.example\n")
	err := replaceBy(path, func(f *os.File) error {
		_, err := f.WriteString("half of ")
		return errors.Join(err, f.Close()) // so the next Close fails
	})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("the error of Close is not seen: %v", err)
	}
	raw, err := os.ReadFile(path)
	files, _ := os.ReadDir(dir)
	if err != nil || string(raw) != "a.example\n" || len(files) != 1 {
		t.Errorf("the file is %q, %v, beside %v", raw, err, files)
	}
}
