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
//
// A file that is lost in a power failure costs full updates only, so it is not synced.
func saveHistory(dir string, s *state) (err error) {
	out := bytes.NewBufferString(historyMagic)
	binary.Write(out, binary.LittleEndian, uint32(len(s.name)))
	out.WriteString(s.name)
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
	return files.Replace(filepath.Join(dir, s.name+historySuffix), func(f *os.File) error {
		_, err := f.Write(out.Bytes())
		return err
	})
}

// loadHistory returns the saved steps that lead to the content of s: none if the file does
// not exist or tells of other contents. An error says that the file cannot be used.
func loadHistory(dir string, s *state) ([]step, error) {
	path := filepath.Join(dir, s.name+historySuffix)
	raw, err := files.Read(path, maxHistoryFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last, steps, err := parseHistory(raw, s.name, s.width)
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

// parseHistory returns the content that was in force when a file was saved, and its steps.
func parseHistory(raw []byte, name string, width int) (last id, steps []step, err error) {
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
		s, err := readStep(r, width)
		if err != nil {
			return id{}, nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		steps = append(steps, s)
	}
	return last, steps, nil
}

// readStep reads one step of a list with entries of width bytes.
func readStep(r io.Reader, width int) (s step, err error) {
	var head [len(id{}) + 8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return step{}, err
	}
	s.from = id(head[:])
	s.until = time.Unix(int64(binary.LittleEndian.Uint64(head[len(id{}):])), 0)
	if s.removed, err = readSet(r, width); err != nil {
		return step{}, err
	}
	s.added, err = readSet(r, width)
	return s, err
}

// readSet reads a set whose entries are width bytes long.
func readSet(r io.Reader, width int) (*prefixset.Set, error) {
	s, err := prefixset.Read(r, maxHistoryEntries)
	if err == nil && slices.ContainsFunc(s.Widths(), func(w int) bool { return w != width }) {
		err = fmt.Errorf("entries of %v bytes, want %d", s.Widths(), width)
	}
	return s, err
}
