package ownlist

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// read reads a list to its end. It returns a content without entries if r is not a list,
// with the reason in its summary. lines is the number of lines of r, or 0 if it is not
// known.
func read(r io.Reader, k Config, lines int) (*content, error) {
	b := newBuilder()
	b.lines = lines
	if err := scan(r, k, &b.content.summary, b.add); err != nil {
		return nil, err
	}
	return b.build(), nil
}

// scan reads a list to its end, passes its entries to emit and counts its other lines in
// sum. It does not set sum.Entries. Lists by URL must not end DNS by one line: such a line
// does not reach emit unless k has Wide.
func scan(r io.Reader, k Config, sum *Summary, emit func(entry)) error {
	p := newParser(k, func(e entry) {
		does := e.wide()
		if does != "" && e.scope&below != 0 && k.Fetched && !k.Wide {
			sum.LeftOut.add(sum.lines, does)
			sum.leftOut += e.sum()
			return
		}
		emit(e)
		if does != "" {
			sum.Wide.add(sum.lines, does)
		}
	})
	err := eachLine(r, nil, func(n int, line []byte, long bool) {
		result := bad
		if sum.lines = n; !long {
			result = p.line(line)
			sum.onPurpose = sum.onPurpose || result == nothing && isEmptyOnPurpose(line)
			if n <= headLines && result == nothing {
				sum.tracker.note(line)
			}
		}
		if k.Fetched { // not quoted: by a redirect or a mistake it may be what only this machine may read
			line = nil
		}
		switch result {
		case localData:
			sum.LocalData.add(n, line)
		case elsewhere:
			sum.Elsewhere.add(n, line)
		case unsupported:
			sum.addUnsupported(p.kind, n, line)
		case bad:
			sum.Bad.add(n, line)
		}
	})
	if e, ok := errors.AsType[notListError](err); ok {
		sum.Seems, sum.Cure = e.seems, e.cure
	} else if err != nil {
		return err
	}
	return nil
}

// load reads a file. It returns the version that it opened. steady is false if the file
// changed while it was read: the content may be a mixture. A file that has not been
// fetched yet is empty, and its version is nil.
func load(k Config) (c *content, version fs.FileInfo, steady bool, err error) {
	f, err := files.Open(k.Path)
	if k.Fetched && errors.Is(err, fs.ErrNotExist) {
		return newBuilder().build(), nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	defer f.Close()
	if version, err = f.Stat(); err != nil {
		return nil, nil, false, err
	}
	lines, err := countLines(f, version.Size())
	if err == nil {
		c, err = read(f, k, lines)
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("reading %s: %w", k.Path, err)
	}
	c.summary.Modified = version.ModTime()
	after, err := f.Stat()
	if err != nil {
		return nil, nil, false, err
	}
	return c, version, files.Same(version, after), nil
}

// countFrom is the size in bytes of a file whose lines are counted.
const countFrom = 4 << 20

// countLines returns the number of line breaks in a large file, and 0 for others. It takes
// a hundredth of the time of reading the list.
func countLines(f *os.File, size int64) (lines int, err error) {
	if size < countFrom {
		return 0, nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte("\n"))
		if errors.Is(err, io.EOF) {
			_, err = f.Seek(0, io.SeekStart)
			return lines, err
		}
		if err != nil {
			return 0, err
		}
	}
}

// FindLine returns the line of a file that decides on h, numbered from 1. If several
// lines do, it returns the first. It reads the file again and ignores expired entries. name
// is the name of the entry that decides, or "": with it most lines need not be parsed. ok is false if no line
// matches h. It is safe for concurrent use.
func FindLine(c Config, h lookup.Host, name string) (line int, text string, ok bool, err error) {
	f, err := files.Open(c.Path)
	if err != nil {
		return 0, "", false, err
	}
	defer f.Close()
	line, text, ok, err = find(f, c, h, name, time.Now())
	if err != nil {
		err = fmt.Errorf("reading %s: %w", c.Path, err)
	}
	return line, text, ok, err
}

// find is FindLine for the lines of r.
func find(r io.Reader, c Config, h lookup.Host, name string, now time.Time) (line int, text string, ok bool, err error) {
	if h.String() == "" {
		return 0, "", false, nil
	}
	var best entry
	var bestLabels int
	better := false // an entry of the current line is the best so far
	whole := isWhole(h)
	p := newParser(c, func(e entry) {
		n := labels(e.name)
		if !e.matches(h.String(), whole, now) || ok && (n < bestLabels || n == bestLabels && (best.allow || !e.allow)) {
			return
		}
		best, bestLabels, ok, better = e, n, true, true
	})
	err = eachLine(r, p.without(name), func(number int, raw []byte, long bool) {
		if better = false; long {
			return
		}
		if p.line(raw); better {
			line, text = number, string(bytes.TrimSpace(raw))
		}
	})
	if _, isOther := errors.AsType[notListError](err); err != nil && !isOther {
		return 0, "", false, err
	}
	return line, text, ok, nil
}

// matches reports whether an entry has not expired and matches a host.
func (e entry) matches(host string, whole bool, now time.Time) bool {
	if !e.until.IsZero() && !now.Before(e.until) {
		return false
	}
	if string(e.name) == host {
		return whole && e.scope&exact != 0 || !whole && e.scope&below != 0
	}
	if e.scope&below == 0 || isIP(host) {
		return false
	}
	above, ok := strings.CutSuffix(host, string(e.name))
	return ok && (len(e.name) == 0 || strings.HasSuffix(above, "."))
}

// State is the condition of a list at one moment.
type State struct {
	Path       string // absolute path of the file, or the name given to Open or Hosts
	Named      string // the name or the path as given to the oldest Open without a Close
	Fetched    bool   // see Config
	Allow      bool   // it is an allow list
	InCorefile bool   // it was made by Hosts
	Err        error  // why the file cannot be used now; the content before is still used. Or nil.
	Summary           // of the content that queries use
}

// State returns the condition of the list now. It is safe for concurrent use.
func (f *File) State() State {
	if f.source != nil {
		return f.source.state()
	}
	c := f.content.Load()
	return State{Path: f.name, Named: f.name, Allow: true, InCorefile: true, Summary: c.summaryAt(time.Now())}
}

func (s *source) state() State {
	st := State{Path: s.key.name(), Named: s.key.name(), Fetched: s.key.Fetched, Allow: s.key.Allow}
	s.mu.Lock()
	st.Err = s.err
	if len(s.openers) > 0 {
		st.Named = s.openers[0].name
	}
	s.mu.Unlock()
	st.Summary = s.content.Load().summaryAt(time.Now())
	return st
}

func (c *content) summaryAt(now time.Time) Summary {
	sum := c.summary
	sum.Ended = c.ended(now)
	return sum
}

// States returns the states of all open files, sorted by path; of one path the block list
// comes first. It waits while Open reads a file. It is safe for concurrent use.
func States() []State { return opened.states() }

func (r *registry) states() (all []State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, allow := range []bool{false, true} {
		for k, s := range r.files {
			if k.Allow == allow {
				all = append(all, s.state())
			}
		}
	}
	slices.SortStableFunc(all, func(a, b State) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// Idle reports whether a list allows nothing for now, and nothing is wrong with it: a file
// for exceptions has none yet, or all have ended.
func (s State) Idle() bool {
	return s.Allow && s.InForce() == 0 && s.Seems == "" && s.Bad.Count+s.NotSupported()+s.Elsewhere.Count+s.LeftOut.Count() == 0
}

// Complaint says why no name of a list is in force, as Nothing does, but "" if nothing is wrong
// with that, see Idle, or if Err says more.
func (s State) Complaint() string {
	switch {
	case s.Idle() || s.Err != nil:
		return ""
	case s.Fetched && s.Modified.IsZero():
		return "has not been fetched yet"
	}
	return s.Nothing()
}

// scope says which names an entry matches, as bits.
type scope uint8

const (
	exact scope = 1 << iota // the name itself
	below                   // the names below it
	tree  = exact | below
)

// entry is the rule of one name of a line.
type entry struct {
	name     []byte // canonical; "" with scope below: every name. Valid only during the call of emit.
	scope    scope
	allow    bool
	response lookup.Response // of an entry that blocks
	until    time.Time       // when it expires; zero: never
}

// outcome is the result of parsing a line. If the names of a line differ, the greatest
// outcome counts.
type outcome uint8

const (
	nothing     outcome = iota // empty, a comment, or another line without a host
	listed                     // its entries were emitted
	localData                  // its entries were emitted; the record itself is never sent
	elsewhere                  // it gives names an address that does not block
	unsupported                // well-formed, but this package cannot express it, see parser.kind
	bad                        // in none of the formats
)
