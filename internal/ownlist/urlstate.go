package ownlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// URLState is what is known of a list by URL. It has no secret of the URL.
type URLState struct {
	Name         string    `json:"name"` // see URLConfig.Name
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"last_modified,omitempty"`
	Changed      time.Time `json:"changed,omitzero"` // when the content in the file came; zero: never
	Checked      time.Time `json:"checked,omitzero"` // when the server last sent it, or said that it has not changed; zero: not known
	Tried        time.Time `json:"tried,omitzero"`   // the last attempt
	Next         time.Time `json:"next,omitzero"`    // no attempt before
	Asked        time.Time `json:"asked,omitzero"`   // the server has asked for none before, with the last of Failures
	Bytes        int64     `json:"bytes"`            // size of the file
	Entries      int       `json:"entries"`          // a name counts once for each time that it occurs
	Names        uint64    `json:"names"`            // see Survey
	Failures     int       `json:"failures"`         // attempts in a row without a list that is believed
	Since        time.Time `json:"since,omitzero"`   // of the first of Failures
	Error        string    `json:"error,omitempty"`  // of the last of Failures
	Doubt        *Doubt    `json:"doubt,omitempty"`  // a list that is not believed yet
}

// Doubt is a list that came and is not believed: it lost too many of its entries.
type Doubt struct {
	Entries int       `json:"entries"`
	Since   time.Time `json:"since"`
}

// Failing reports whether the last attempt brought no list that is believed.
func (s URLState) Failing() bool { return s.Failures > 0 }

// maxState is the most bytes of a state file.
const maxState = 64 << 10

// maxURLState is the most bytes of a text in a state file.
const maxURLState = 1 << 10

// ReadURLState returns the state of the list that a CoreDNS saved last. It is fs.ErrNotExist
// if there is none, also without a DB.
func ReadURLState(c URLConfig) (URLState, error) {
	if c.DB == "" {
		return URLState{Name: c.Name()}, fs.ErrNotExist
	}
	return readURLState(c.Name(), c.Path())
}

// readURLState reads the state file of a list file. If there is an error, its result has the name, and
// when the list came.
func readURLState(name, path string) (URLState, error) {
	none := URLState{Name: name}
	none.recall(path)
	raw, err := files.Read(stateOf(path), maxState)
	if err != nil {
		return none, err
	}
	s, err := parseURLState(raw)
	if err != nil {
		return none, fmt.Errorf("reading %s: %w", stateOf(path), err)
	}
	s.Name = name
	s.recall(path)
	return s, nil
}

// recall compares the state with the file of the list. If someone has removed or changed
// the file, or if a crash or a damaged disk has left it without its state, the next attempt asks
// for the whole list. A file that is there is in force all the same.
func (s *URLState) recall(path string) {
	info, err := os.Stat(path)
	there := err == nil && info.Mode().IsRegular()
	if there && info.Size() == s.Bytes {
		return
	}
	s.ETag, s.LastModified, s.Bytes, s.Entries, s.Names = "", "", 0, 0, 0
	s.Changed, s.Checked, s.Doubt = time.Time{}, time.Time{}, nil
	if there {
		s.Changed = info.ModTime()
	}
}

var errState = errors.New("it is not the state of a list")

// parseURLState parses a state file. It refuses numbers and texts that save never writes.
func parseURLState(raw []byte) (s URLState, err error) {
	if err := json.Unmarshal(raw, &s); err != nil {
		return URLState{}, fmt.Errorf("%w: %w", errState, err)
	}
	doubt := s.Doubt != nil && s.Doubt.Entries < 0
	if s.Bytes < 0 || s.Entries < 0 || s.Failures < 0 || s.Failures > 1<<30 || doubt { // one more failure must fit
		return URLState{}, errState
	}
	for _, text := range []string{s.Name, s.ETag, s.LastModified, s.Error} {
		if text != printable(text) {
			return URLState{}, errState
		}
	}
	return s, nil
}

// save writes the state file of a list file.
func (s URLState) save(path string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return files.Replace(stateOf(path), func(w *os.File) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
}

// doubtFor is how long a list that has lost too much must stay so to be believed.
const doubtFor = time.Hour

// DoubtError says why a list that came is not believed.
type DoubtError struct {
	Why string // "it looks like an HTML page"
	// From is when the same list is believed; zero: never.
	From time.Time
}

// Error implements error.
func (e *DoubtError) Error() string { return doubtWords + e.Why }

// doubtWords begin the text of each DoubtError, so that a State tells it from others.
const doubtWords = "the list that came is not believed: "

// judge says why a list that came is not believed, or returns nil. The answer of a failing
// server must not replace a good list. doubt is what to remember for the next one.
//
// An HTML page, another file that is not a list and an empty answer are never believed. A
// list that has lost more than half of its entries is, when it comes a second time after
// doubtFor.
func judge(s URLState, came Summary, now time.Time) (doubt *Doubt, err error) {
	nothing := came.Nothing()
	switch {
	case came.Seems != "":
		return s.Doubt, &DoubtError{Why: "it " + came.Seems}
	case came.Entries > maxEntries:
		return s.Doubt, &DoubtError{Why: fmt.Sprintf("it has %d entries, and a list may have %d", came.Entries, maxEntries)}
	case came.Entries == 0 && nothing != "" && (s.Bytes == 0 || nothing != onlyComments):
		return s.Doubt, &DoubtError{Why: "it " + nothing}
	case 2*came.Entries >= s.Entries:
		return nil, nil
	}
	doubt = s.Doubt
	if doubt == nil || 2*came.Entries < doubt.Entries || now.Before(doubt.Since) {
		doubt = &Doubt{Entries: came.Entries, Since: now}
	}
	from := doubt.Since.Add(doubtFor)
	if !now.Before(from) {
		return nil, nil
	}
	return doubt, &DoubtError{
		Why:  fmt.Sprintf("it has %s, and the one before had %d", say.Count(came.Entries, "entry", "entries"), s.Entries),
		From: from,
	}
}

// onlyComments is Summary.Nothing of a list that its makers may have emptied. "" stands for
// one whose comment says that it is empty on purpose.
const onlyComments = "has only comments"
