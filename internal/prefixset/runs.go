package prefixset

import (
	"bytes"
	"io"
	"runtime"
	"slices"
	"sort"
)

// runEntries is the most entries in one result of Runs.Next.
const runEntries = 1024

// Runs reads the entries of a Set in order. It is not safe for concurrent use, but several Runs
// of one Set may be used at once.
type Runs struct {
	sources []*runSource // all that have entries left
	current *runSource   // the source of the last result of Next; nil: none
	taken   int          // bytes of the last result of Next
}

// runSource reads the entries of one width.
type runSource struct {
	cursor entryReader
	width  int
	buf    []byte // whole entries
	rest   []byte // the part of buf that Next has not returned yet; not empty
}

// fill reads the next entries. It reports whether there were any.
func (s *runSource) fill() bool {
	s.rest = s.buf[:s.cursor.read(s.buf)]
	runtime.KeepAlive(s) // the cursor reads memory that the collector frees with s
	return len(s.rest) > 0
}

// below returns the bytes of the entries in rest that are less than bound. The first entry
// always counts: entries of a damaged file may not ascend, and Next must make progress.
func (s *runSource) below(bound []byte) int {
	n := sort.Search(len(s.rest)/s.width-1, func(i int) bool {
		return bytes.Compare(s.rest[(i+1)*s.width:(i+2)*s.width], bound) >= 0
	})
	return (n + 1) * s.width
}

// Runs returns a reader of all entries, the least first.
func (s *Set) Runs() *Runs {
	r := new(Runs)
	if p := s.four.Load(); p != nil {
		r.add(&runSource{cursor: p.cursor(), width: 4}, p.n)
	}
	for _, p := range s.wide {
		r.add(&runSource{cursor: &wideCursor{wide: p}, width: p.width}, p.len())
	}
	return r
}

// add adds a source of n entries.
func (r *Runs) add(s *runSource, n int) {
	s.buf = make([]byte, s.width*min(runEntries, n))
	if s.fill() {
		r.sources = append(r.sources, s)
	}
}

// Next returns the next entries in bytewise order over all widths: 1 to 1,024 entries of one
// width, one after the other without a separator. They are valid until the next call. At the
// end it returns nil, 0.
func (r *Runs) Next() (entries []byte, width int) {
	r.drop()
	r.current = nil
	var second *runSource // the source with the least entry of all others
	for _, s := range r.sources {
		switch {
		case r.current == nil || bytes.Compare(s.rest[:s.width], r.current.rest[:r.current.width]) < 0:
			r.current, second = s, r.current
		case second == nil || bytes.Compare(s.rest[:s.width], second.rest[:second.width]) < 0:
			second = s
		}
	}
	if r.current == nil {
		return nil, 0
	}
	r.taken = len(r.current.rest)
	if second != nil {
		r.taken = r.current.below(second.rest[:second.width])
	}
	return r.current.rest[:r.taken], r.current.width
}

// drop removes the last result of Next from its source.
func (r *Runs) drop() {
	if r.current == nil {
		return
	}
	r.current.rest = r.current.rest[r.taken:]
	if len(r.current.rest) > 0 || r.current.fill() {
		return
	}
	r.sources = slices.DeleteFunc(r.sources, func(s *runSource) bool { return s == r.current })
}

// Reader returns a reader of all entries, ascending bytewise, one after the other without a
// separator. The checksum of a list is the SHA-256 of these bytes ("Local Database"). It is
// not safe for concurrent use, but several readers of one Set may be used at once.
func (s *Set) Reader() io.Reader { return &setReader{runs: s.Runs()} }

type setReader struct {
	runs *Runs
	rest []byte // the part of the last run that has not been read yet
}

// Read implements io.Reader.
func (r *setReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.rest) == 0 {
			if r.rest, _ = r.runs.Next(); len(r.rest) == 0 {
				break
			}
		}
		c := copy(p[n:], r.rest)
		r.rest, n = r.rest[c:], n+c
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
