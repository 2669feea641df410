package files

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAFileInTheWayOfAFolderIsFound(t *testing.T) {
	dir := t.TempDir()
	file, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "dangling")
	testkit.Must(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Join(dir, "none"), dangling)))
	for path, want := range map[string]string{
		file:                         file,
		filepath.Join(file, "a/b"):   file,
		dir:                          "",
		filepath.Join(dir, "a/b"):    "",
		dangling:                     "",
		filepath.Join(dangling, "a"): "",
		"none-such/relative":         "",
	} {
		if got := InTheWay(path); got != want {
			t.Errorf("in the way of %s: %q, want %q", path, got, want)
		}
	}
}

func TestReadReturnsRegularFilesOfLimitedSize(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("x"), 100)
	path := filepath.Join(dir, "file")
	testkit.Must(t, os.WriteFile(path, content, 0o600))
	for name, tc := range map[string]struct {
		path string
		most int
		want error
	}{
		"a file":         {path, 100, nil},
		"a longer file":  {path, 99, ErrSize},
		"a folder":       {dir, 100, ErrIrregular},
		"a device":       {os.DevNull, 100, ErrIrregular},
		"nothing at all": {path + "x", 100, fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := Read(tc.path, tc.most)
			if !errors.Is(err, tc.want) || (err == nil) != bytes.Equal(raw, content) {
				t.Errorf("got %d bytes and %v, want %v", len(raw), err, tc.want)
			}
		})
	}
}
