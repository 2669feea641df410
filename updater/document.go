package updater

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// A document is a small value that outlives its process, or is agreed among several: the schedule,
// the clock of searches, and the count of searches. One owner has it in memory. Copies of it on
// media are joined with that, by one pure function for each kind of document: what is read is never
// believed instead of what is known, so a medium may lose a document, or bring an old copy back.

// document brings the value of an owner together with its copies, which have type T. Only one
// goroutine writes at a time, and nobody needs to wait for the disk.
type document[T any] struct {
	// media returns where copies are: in a Shared, if there is one, then in the folder of the
	// lists, and then in the one that stands in for it.
	media  func() []place
	parse  func(raw []byte, now time.Time, at moment) (T, error)
	meet   func(found T, in placeKind)                    // joins a copy with the value
	lacks  func(found T) bool                             // a copy does not have all of the value
	encode func(now time.Time, at moment) ([]byte, error) // the value
	// These may be nil. gather comes before each round of writes, without mu; prepare changes the
	// value when it has met the copy that it is about to replace, until one is replaced; damaged is told,
	// without mu, of a copy that cannot be read, and judge, which may be nil, may keep it from being replaced.
	gather  func()
	prepare func()
	damaged func(p place, err error) (judge func() error)

	mu      *sync.Mutex // of the owner; held when the functions above are called, but for gather, parse and damaged. It guards the rest
	dirty   bool        // there is a change to write
	saving  *saving     // under way; nil: nothing is
	late    bool        // it takes longer than diskPatience
	looking chan struct{}
	away    error // of the last write into the Shared; nil: it was reached, or there is none
	seen    [3]sight
}

// place is a Medium as a document sees it.
type place struct {
	Medium
	document string // its name
	kind     placeKind
	clock    func(now time.Time) (written, read moment) // of times in documents: no wait that is read ends early
	repairs  bool                                       // only what the copy lacks is written, no change
}

type placeKind uint8

const (
	inShared placeKind = iota
	inFolder
	inSpare
)

// sight is a copy as it was read or written last.
type sight struct {
	raw  []byte
	file os.FileInfo // nil: it is no file, or was written and not looked at since
}

// saving is a write that is under way.
type saving struct {
	done chan struct{} // closed at its end, when the rest may be read
	err  error         // of the folder
}

// shareSlack is more than clocks of machines go apart between two looks at the one of a Shared.
const shareSlack = 100 * time.Millisecond

// folders returns the places of a document in folders.
func (s *Store) folders(document string) []place {
	return []place{{Medium: folder{s, false}, document: document, kind: inFolder, clock: s.moments}, {Medium: folder{s, true}, document: document, kind: inSpare, clock: s.moments}}
}

// places returns all places of a document, with m as the Medium of the Shared, if there is one.
func (s *Store) places(document string, m Medium, repairs bool) []place {
	if s.shared == nil {
		return s.folders(document)
	}
	at := func(now time.Time) (written, read moment) {
		latest, within := s.shared.Now()
		late := time.Since(now) // the process may have been stopped meanwhile
		return moment{Saved: latest}, moment{Saved: latest.Add(-within - shareSlack - late)}
	}
	return append([]place{{Medium: m, document: document, kind: inShared, clock: at, repairs: repairs}}, s.folders(document)...)
}

// read returns the copy that a Medium has returned with err. A copy that there is not lacks
// everything; the error is one of a copy that cannot be read.
func (d *document[T]) read(p place, raw []byte, err error, now time.Time, at moment) (found T, _ error) {
	if p.kind == inShared {
		err = nil // it is away, and raw is what it had
	}
	if err != nil || raw == nil {
		return found, err
	}
	return d.parse(raw, now, at)
}

// look joins the copy in a place, if it is another one than that which was read or written last, and
// accept, which may be nil, accepts it. lacks says that it does not have all of the value.
func (d *document[T]) look(p place, accept func(T) bool) (news, lacks bool, err error) {
	now := time.Now()
	var file os.FileInfo
	if f, ok := p.Medium.(folder); ok {
		d.mu.Lock()
		last := d.seen[p.kind].file
		d.mu.Unlock()
		// Most looks read no more than this.
		if file = f.stat(p.document); file == nil || files.Same(last, file) {
			return false, false, nil
		}
	}
	_, at := p.clock(now) // before the disk is read, which may take long
	raw, readErr := p.Read(p.document)
	if readErr != nil && p.kind == inShared {
		return false, false, nil
	}
	found, err := d.read(p, raw, readErr, now, at)
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.seen[p.kind].raw
	if err == nil && (raw != nil || file == nil) { // otherwise the next look may read it
		d.seen[p.kind] = sight{raw, file}
	}
	if raw != nil && last != nil && bytes.Equal(raw, last) {
		return false, false, nil
	}
	if news = err == nil && raw != nil && (accept == nil || accept(found)); news {
		d.meet(found, p.kind)
	}
	return news, err != nil || d.lacks(found), err
}

// lookTimeout bounds how long a search waits for the disk to read a document.
const lookTimeout = 100 * time.Millisecond

// lookBriefly looks into the folders, unless somebody does so or a write hangs, and waits for a disk
// that hangs no longer than lookTimeout.
func (d *document[T]) lookBriefly(places []place) {
	done := make(chan struct{})
	d.mu.Lock()
	busy := d.late || d.looking != nil
	if !busy {
		d.looking = done
	}
	d.mu.Unlock()
	if busy {
		return
	}
	go func() { // ends when the disk answers; flush waits for it
		for _, p := range places {
			_, _, _ = d.look(p, nil) // a copy that cannot be read is ignored
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.looking = nil
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(lookTimeout):
	}
}

// save begins to write, unless a write is under way, and continues while there are changes. ended, which
// may be nil, is called after each round; kept says that the value is in a folder, and err is that
// of the folder of the lists. The caller holds mu.
func (d *document[T]) save(ended func(kept bool, err error)) *saving {
	if d.saving != nil {
		return d.saving
	}
	s := &saving{done: make(chan struct{})}
	if len(d.media()) == 0 {
		d.dirty = false
		close(s.done)
		return s
	}
	d.saving = s
	go d.run(s, ended) // ends when the disk answers and nothing is to be written
	return s
}

// run writes until there is nothing to write.
func (d *document[T]) run(s *saving, ended func(kept bool, err error)) {
	for again := true; again; {
		kept, err := d.round()
		if ended != nil {
			ended(kept, err)
		}
		d.mu.Lock()
		if again = d.dirty; !again {
			s.err, d.saving, d.late = err, nil, false
			close(s.done)
		}
		d.mu.Unlock()
	}
}

// round brings the value and its copies together.
func (d *document[T]) round() (kept bool, err error) {
	if d.gather != nil {
		d.gather()
	}
	d.mu.Lock()
	w := writing{places: d.media(), forced: d.dirty}
	d.dirty = false
	d.mu.Unlock()
	for i, p := range w.places {
		switch tried := d.bring(p, &w, i == 0); p.kind {
		case inShared:
			d.mu.Lock()
			d.away = tried
			d.mu.Unlock()
		case inFolder:
			if err = tried; err == nil || errors.Is(err, errLocked) || errors.Is(err, errStays) {
				return err == nil, err
			}
		case inSpare:
			if kept = tried == nil; !kept {
				err = fmt.Errorf("%w; nor can it be saved elsewhere, so that a start does not know of the one before: %w", err, tried)
			}
		}
	}
	return kept, err
}

// errStays says that a copy must not be replaced.
var errStays = errors.New("the file stays as it is")

// writing is a round of writes.
type writing struct {
	places   []place
	forced   bool // there was a change
	prepared bool // a copy that has been replaced has all of the value
}

// bring joins the copy in a place, and replaces it if it lacks something or there is a change.
func (d *document[T]) bring(p place, w *writing, first bool) error {
	var wrote []byte
	err := exchange(p, p.document, func(raw []byte, readErr error) (_ []byte, err error) {
		now := time.Now()
		written, read := p.clock(now)
		found, readErr := d.read(p, raw, readErr, now, read)
		var judge func() error
		if readErr != nil && d.damaged != nil {
			judge = d.damaged(p, readErr)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.kind == inShared {
			d.away = nil // as far as is known
		}
		if first { // otherwise those before need the change, too
			w.forced, d.dirty = w.forced || d.dirty, false
		}
		switch {
		case judge != nil:
			if err := judge(); err != nil {
				return nil, err
			}
		case readErr == nil && raw != nil && !bytes.Equal(raw, d.seen[p.kind].raw):
			d.meet(found, p.kind)
		}
		if d.prepare != nil && !w.prepared {
			d.prepare()
		}
		if readErr == nil && (!w.forced || p.repairs) && !d.lacks(found) {
			return nil, nil
		}
		wrote, err = d.encode(now, written)
		return wrote, err
	})
	if err != nil {
		return err
	}
	w.prepared = true
	if wrote != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.seen[p.kind] = sight{raw: wrote} // which file that is the next look finds: it may be another process's by now
	}
	return nil
}

// await waits for a write, for at most diskPatience, and reports whether it was in vain. Others then
// do not wait for it at all.
func (d *document[T]) await(ctx context.Context, s *saving) (late bool) {
	d.mu.Lock()
	late = d.late && d.saving == s
	d.mu.Unlock()
	if late {
		return true
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	case <-time.After(diskPatience):
		d.mu.Lock()
		defer d.mu.Unlock()
		if late = d.saving == s; late {
			d.late = true
		}
	}
	return late
}

// flush waits for a moment at which nothing is written or looked at.
func (d *document[T]) flush() {
	for {
		d.mu.Lock()
		s, looking := d.saving, d.looking
		d.mu.Unlock()
		switch {
		case s != nil:
			<-s.done
		case looking != nil:
			<-looking
		default:
			return
		}
	}
}

// forget forgets what the media have: from now on they are others.
func (d *document[T]) forget() { d.seen = [3]sight{} }

// maxJoined is the most bytes of a value, as JSON, that takes over what a Shared has: half of what is read of a file. A
// document of a Shared has a quarter of that, but each copy may name other writers. What this process adds is saved in
// a folder, too, so the value from there may be as large as a file.
const maxJoined = maxSmall / 2

// fits reports whether a value is not larger than that.
func fits(value any, in placeKind) bool {
	raw, err := json.Marshal(value)
	return err == nil && (len(raw) <= maxJoined || in != inShared && len(raw) <= maxSmall)
}

// newWriter returns a name for a process that writes documents, which no other one has.
func newWriter() string { return rand.Text()[:13] }
