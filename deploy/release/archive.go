package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is a file of an archive, of a package or of an image.
type file struct {
	path   string // in the archive
	source string // on this machine
	mode   int64
}

// manualPages returns the paths of all pages, sorted.
func manualPages(source string) ([]string, error) {
	return filepath.Glob(filepath.Join(source, "deploy/man/man[17]/*"))
}

// archive writes the archive for a target: programs, manual pages and examples.
func (r *release) archive(t target) error {
	pages, err := manualPages(r.source)
	if err != nil {
		return err
	}
	var files []file
	for _, program := range programs {
		files = append(files, file{program, r.binary(t, program), 0o755})
	}
	for _, page := range pages {
		files = append(files, file{filepath.Join("man", filepath.Base(filepath.Dir(page)), filepath.Base(page)), page, 0o644})
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "README.md", "Corefile.example", "testdata/blocklist.txt"} {
		files = append(files, file{name, filepath.Join(r.source, name), 0o644})
	}
	if t.os == "linux" {
		for _, unit := range units {
			files = append(files, file{"systemd/" + unit, filepath.Join(r.source, "deploy/systemd", unit), 0o644})
		}
	}
	return writeFile(r.name(t, ".tar.gz"), func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		if err := r.tar(zip, filepath.Base(r.name(t, "")), files); err != nil {
			return err
		}
		return zip.Close()
	})
}

// tar writes files below the folder top, if it is not "", in the order of their paths and without their owners.
func (r *release) tar(w io.Writer, top string, files []file) error {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	out := tar.NewWriter(w)
	for _, f := range files {
		content, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		if err := r.addEntry(out, entry{path: path.Join(top, f.path), mode: f.mode, content: content}); err != nil {
			return err
		}
	}
	return out.Close()
}

// writeFile makes a file with write.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}
