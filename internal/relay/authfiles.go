package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// filesInterval is the time between two looks at the files of keys and certificates.
const filesInterval = 5 * time.Second

// watched is a group of files that are read together, again when one has changed.
type watched struct {
	what    string // in words
	paths   []string
	load    func() error // keeps what is in force if it returns an error
	read    string       // how the files were when they were read last
	trouble say.Trouble  // with reading them
}

// open reads the files for the first time.
func (w *watched) open() error {
	w.read = w.stamp()
	return w.load()
}

// look reads the files if they have changed, and logs that. It logs each trouble once.
func (w *watched) look() {
	now := w.stamp()
	if now == w.read && !w.trouble.Lasts() {
		return
	}
	err := w.load()
	began, _ := w.trouble.Note(err)
	if err != nil {
		if began {
			log.Errorf("Cannot read the %s: %v. Those before stay in use; the files are read again every 5 seconds", w.what, err)
		}
		return
	}
	w.read = now
	log.Infof("The %s in %s are in use as they are now", w.what, strings.Join(w.paths, ", "))
}

// stamp describes the files: two equal stamps say that they have not changed. The content counts:
// one key may replace another of the same size and time.
func (w *watched) stamp() (all string) {
	for _, path := range w.paths {
		content, err := files.Read(path, maxWatched)
		all += fmt.Sprintf("%x %v;", sha256.Sum256(content), err)
	}
	return all
}

// maxWatched is the most bytes of a file of keys or certificates.
const maxWatched = 1 << 20

// watch looks at the files until ctx ends.
func watch(ctx context.Context, all []*watched) {
	files.Every(ctx, filesInterval, func() {
		for _, w := range all {
			w.look()
		}
	})
}

// openAll reads all files. The error names each that cannot be read.
func openAll(all []*watched) error {
	var errs []error
	for _, w := range all {
		errs = append(errs, w.open())
	}
	return errors.Join(errs...)
}
