package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The bounds of a list's history. A client with an older version gets a full update.
const (
	historyAge   = 48 * time.Hour
	historySteps = 1024

	// A partial update is worth its while only if it is much smaller than a full one, and
	// so is the history: half of the list's own memory, between these.
	minHistoryBytes = 64 << 10
	maxHistoryBytes = 4 << 20
	stepOverhead    = 256 // bytes of a step beside its entries
)

// change is the difference between two contents.
type change struct{ removed, added *prefixset.Set }

// step is a content that was replaced, by the content of the next step or, the last step, by
// the one in force.
type step struct {
	from  id
	until time.Time // when it was replaced
	change
}

// bytes returns the memory of a step.
func (s step) bytes() int { return stepOverhead + s.removed.Bytes() + s.added.Bytes() }

// changeBetween returns the change from one content to another. As a partial update has it, removed
// is indexed: the indices in base, as four bytes, big-endian.
func changeBetween(base, target runs, indexed bool) (change, error) {
	gone, came := prefixset.NewBuilder(0), prefixset.NewBuilder(0)
	d := prefixset.NewDiffer(base, target)
	for {
		var err error
		switch where, entries, width := d.Next(); {
		case where == prefixset.Ended:
			return change{gone.Set(), came.Set()}, nil
		case where == prefixset.BaseOnly && indexed:
			err = gone.Add(binary.BigEndian.AppendUint32(nil, uint32(d.Index())), 4)
		case where == prefixset.BaseOnly:
			err = gone.Add(entries, width)
		case where == prefixset.TargetOnly:
			err = came.Add(entries, width)
		}
		if err != nil {
			return change{}, err
		}
	}
}

// then returns the change that c and next make together: an entry that comes and goes, or
// goes and comes, is in neither set.
func (c change) then(next change) (change, error) {
	gone, err := together(c.removed, next.added, next.removed, c.added)
	if err != nil {
		return change{}, err
	}
	came, err := together(c.added, next.removed, next.added, c.removed)
	return change{gone, came}, err
}

// together returns the entries of a that are not in notA, and of b that are not in notB.
func together(a, notA, b, notB *prefixset.Set) (*prefixset.Set, error) {
	rest := changedRuns(setRuns(b), setRuns(notB), none())
	return collect(changedRuns(setRuns(a), setRuns(notA), rest), a.Len()+b.Len())
}

// changeOf returns the change that steps make together. There must be one at least.
func changeOf(steps []step) (change, error) {
	if len(steps) == 1 {
		return steps[0].change, nil
	}
	half := len(steps) / 2 // pairs of equal size: each entry is read a logarithmic number of times
	first, err := changeOf(steps[:half])
	if err != nil {
		return change{}, err
	}
	second, err := changeOf(steps[half:])
	if err != nil {
		return change{}, err
	}
	return first.then(second)
}

// trimmed returns the steps that a list of listBytes keeps at now: the youngest.
func trimmed(steps []step, listBytes int, now time.Time) []step {
	left := min(max(listBytes/2, minHistoryBytes), maxHistoryBytes)
	from := len(steps)
	for from > 0 && len(steps)-from < historySteps {
		s := steps[from-1]
		if left -= s.bytes(); left < 0 || now.Sub(s.until) > historyAge {
			break
		}
		from--
	}
	return steps[from:len(steps):len(steps)]
}

// since returns the steps from the last time that a content was in force, nil if there are
// none.
func since(steps []step, from id) []step {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].from == from {
			return steps[i:]
		}
	}
	return nil
}

const (
	historySuffix = ".history"
	historyMagic  = "safebrowsing history 1\n"

	// maxHistoryFile is the most bytes of a file that are read: the bound of the memory,
	// and what the form on disk adds at most.
	maxHistoryFile = 2 * maxHistoryBytes

	// maxHistoryEntries is the most entries of a set in a file. One has a bit at least.
	maxHistoryEntries = 8 * maxHistoryFile
)

var errDamaged = errors.New("the file is damaged")

// saveHistory replaces the file with the history of a list. The file is the magic line, the
// name with its length in four bytes, the checksum of the content in force, the number of
// steps, then of each step the id, the time, and both sets; at the end a SHA-256 of all that.
func saveHistory(dir string, s *state) (err error) {
	out := bytes.NewBufferString(historyMagic)
	binary.Write(out, binary.LittleEndian, uint32(len(s.form())))
	out.WriteString(s.form())
	out.Write(s.sum[:])
	binary.Write(out, binary.LittleEndian, uint32(len(s.history)))
	for _, step := range s.history {
		out.Write(step.from[:])
		binary.Write(out, binary.LittleEndian, step.until.Unix())
		if _, err := step.removed.WriteTo(out); err != nil {
			return err
		}
		if _, err := step.added.WriteTo(out); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	return files.Replace(filepath.Join(dir, s.form()+historySuffix), func(f *os.File) error {
		_, err := f.Write(out.Bytes())
		return err
	})
}

// loadHistory returns the saved steps that lead to the content of s: none if the file does
// not exist or tells of other contents. An error says that the file cannot be used.
func loadHistory(dir string, s *state) ([]step, error) {
	path := filepath.Join(dir, s.form()+historySuffix)
	raw, err := files.Read(path, maxHistoryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last, steps, err := parseHistory(raw, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if last == s.id {
		return steps, nil
	}
	if later := since(steps, s.id); later != nil { // an older content is in force again
		return steps[:len(steps)-len(later)], nil
	}
	return nil, nil
}

// parseHistory returns the content of the list of s that was in force when a file was saved, and
// its steps.
func parseHistory(raw []byte, s *state) (last id, steps []step, err error) {
	name := s.form()
	end := len(raw) - sha256.Size
	if end < 0 || len(raw) > maxHistoryFile || sha256.Sum256(raw[:end]) != [sha256.Size]byte(raw[end:]) {
		return id{}, nil, errDamaged
	}
	head := binary.LittleEndian.AppendUint32([]byte(historyMagic), uint32(len(name)))
	rest, ok := bytes.CutPrefix(raw[:end], append(head, name...))
	if !ok || len(rest) < sha256.Size+4 {
		return id{}, nil, fmt.Errorf("%w: it is not the history of list %s", errDamaged, name)
	}
	last = id(rest)
	count := binary.LittleEndian.Uint32(rest[sha256.Size:])
	r := bytes.NewReader(rest[sha256.Size+4:])
	for range count {
		step, err := readStep(r, s)
		if err != nil {
			return id{}, nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		steps = append(steps, step)
	}
	return last, steps, nil
}

// readStep reads one step of the list.
func readStep(r io.Reader, of *state) (s step, err error) {
	var head [len(id{}) + 8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return step{}, err
	}
	s.from = id(head[:])
	s.until = time.Unix(int64(binary.LittleEndian.Uint64(head[len(id{}):])), 0)
	if s.removed, err = readSet(r, of); err != nil {
		return step{}, err
	}
	s.added, err = readSet(r, of)
	return s, err
}

// readSet reads a set of entries that the list may have.
func readSet(r io.Reader, of *state) (*prefixset.Set, error) {
	s, err := prefixset.Read(r, maxHistoryEntries)
	if err == nil && slices.ContainsFunc(s.Widths(), func(w int) bool { return !of.holds(w) }) {
		err = fmt.Errorf("entries of %v bytes, want %d", s.Widths(), of.width)
	}
	return s, err
}
