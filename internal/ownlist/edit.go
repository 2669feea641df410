package ownlist

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// emptyOnPurpose is the comment that lets a list lose its last entry. Without it a list
// that becomes empty is taken for an accident, and its old entries stay in force.
const emptyOnPurpose = "# empty on purpose"

// Edited is the result of Add or Remove.
type Edited struct {
	Text    []byte   // of the whole file
	Line    int      // of the entry that was added, from 1; 0 after Remove
	Entry   string   // that line, without its line break
	Ended   []string // lines that were removed because their entries have ended
	Removed []string // lines that Remove removed
	Changed bool     // Text differs from the text before
}

// Add returns the text of a list with an entry for a host and all names below it. An
// entry of exactly this host is replaced where it is; otherwise the entry becomes the last
// line. A permanent entry of an allow list stays permanent. Add removes lines whose entries
// have ended, and keeps all others byte for byte. A zero until means for ever; block lists
// have no other.
//
// It is an error if the entry would have no effect in this file.
func Add(text []byte, c Config, h lookup.Host, until, now time.Time) (Edited, error) {
	if err := Usable(text); err != nil {
		return Edited{}, err
	}
	if !until.IsZero() && !c.Allow {
		return Edited{}, errors.New("entries of a block list have no end")
	}
	if !until.IsZero() {
		new(editor).each(text, c, func(_ []byte, of []entry) {
			if only(of, h) && permanent(of, c) {
				until = time.Time{}
			}
		})
	}
	e := editor{entry: entryOf(c, h, until), newline: newlineOf(text)}
	e.each(text, c, func(line []byte, of []entry) {
		switch {
		case ended(of, now):
			e.Ended = append(e.Ended, shortText(line))
		case !only(of, h), !until.IsZero() && of[0].until.IsZero(): // a permanent one, for the host alone or for the names below it
			e.keep(line)
		case e.Line > 0: // the same host a second time
		case permanent(of, c):
			e.keep(line)
			e.Line, e.Entry = e.lines, shortText(line)
		default:
			e.put(e.entry + commentOf(line))
		}
	})
	if e.Line == 0 {
		e.put(e.entry)
	}
	return e.end(text, c, h, now)
}

// ErrOthers says that a line cannot be removed: it has entries of several hosts.
var ErrOthers = errors.New("is about other hosts too: edit it by hand")

// Remove returns the text of a list without the entries of a host. It removes lines whose
// entries have ended too, and keeps all others byte for byte. It is an error if no line is
// about exactly this host, or if such a line is about other hosts too.
func Remove(text []byte, c Config, h lookup.Host, now time.Time) (Edited, error) {
	if err := Usable(text); err != nil {
		return Edited{}, err
	}
	e, number := editor{newline: newlineOf(text)}, 0
	var err error
	e.each(text, c, func(line []byte, of []entry) {
		number++
		switch {
		case only(of, h):
			e.Removed = append(e.Removed, shortText(line))
		case ended(of, now):
			e.Ended = append(e.Ended, shortText(line))
		case slices.ContainsFunc(of, func(x entry) bool { return string(x.name) == h.String() }):
			err = fmt.Errorf("line %d %w", number, ErrOthers)
		default:
			e.keep(line)
		}
	})
	if err == nil && len(e.Removed) == 0 {
		err = fmt.Errorf("no line is about %s", h)
		if line, entry, ok, _ := find(bytes.NewReader(text), c, h, "", now); ok {
			err = fmt.Errorf("%w: line %d, %q, is about a name above it", err, line, entry)
		}
	}
	if err != nil {
		return Edited{}, err
	}
	return e.end(text, c, lookup.Host{}, now)
}

// Listed is a line of a list with entries.
type Listed struct {
	Line  int // from 1
	Text  string
	Until time.Time // when its entries end; zero: never
}

// Entries returns the lines of a list that have entries, with those that have ended.
func Entries(text []byte, c Config) (all []Listed, err error) {
	if err := Usable(text); err != nil {
		return nil, err
	}
	number := 0
	new(editor).each(text, c, func(line []byte, of []entry) {
		if number++; len(of) > 0 {
			all = append(all, Listed{number, shortText(line), of[0].until})
		}
	})
	return all, nil
}

// Usable returns an error if a text is not a list, such as a compressed file or a page. Its first bytes say it.
func Usable(text []byte) error {
	if e, ok := notList(text[:min(len(text), sniffBytes)]); ok && len(text) > 0 {
		return e
	}
	return nil
}

// editor builds the new text of a list.
type editor struct {
	Edited
	entry   string
	newline string
	lines   int // in Text
}

// each calls do for each line of a text, with its line break and its entries. It leaves
// out the comment emptyOnPurpose, which end writes again where it is needed.
func (e *editor) each(text []byte, c Config, do func(line []byte, of []entry)) {
	var of []entry
	p := newParser(c, func(x entry) {
		x.name = bytes.Clone(x.name)
		of = append(of, x)
	})
	for line := range bytes.Lines(text) {
		of = of[:0]
		content := bytes.TrimRight(bytes.TrimPrefix(line, byteOrderMark), "\r\n")
		if len(content) <= maxLine {
			p.line(content)
		}
		do(line, of)
	}
}

func (e *editor) keep(line []byte) {
	if !isEmptyOnPurpose(line) {
		e.append(line)
	}
}

func (e *editor) append(line []byte) {
	e.Text = append(e.Text, line...)
	e.lines++
}

// put adds a line and notes that it is the entry.
func (e *editor) put(line string) {
	if n := len(e.Text); n > 0 && e.Text[n-1] != '\n' {
		e.Text = append(e.Text, e.newline...)
	}
	e.append([]byte(line + e.newline))
	e.Line, e.Entry = e.lines, line
}

// end completes the text and checks that it does what it is for. A zero host was removed.
func (e *editor) end(old []byte, c Config, h lookup.Host, now time.Time) (Edited, error) {
	content, err := read(bytes.NewReader(e.Text), c, 0)
	if err != nil {
		return Edited{}, err
	}
	if content.summary.Entries == 0 {
		e.put(emptyOnPurpose)
	}
	want := block
	if c.Allow {
		want = allow
	}
	if act, _ := content.match(h, now); h != (lookup.Host{}) && act != want {
		return Edited{}, fmt.Errorf("an entry for %s would have no effect in this file: edit it by hand", h)
	}
	if h == (lookup.Host{}) {
		e.Line, e.Entry = 0, ""
	}
	e.Changed = !bytes.Equal(e.Text, old)
	return e.Edited, nil
}

// entryOf returns the line for a host and all names below it.
func entryOf(c Config, h lookup.Host, until time.Time) string {
	name := h.String()
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err != nil && !c.Allow {
		name = "." + name // in a block list a plain name is that host alone
	}
	if until.IsZero() {
		return name
	}
	return name + " # until " + until.Format(time.RFC3339)
}

// commentOf returns the comment of a line without its "until", to be appended to another
// entry. It is "" if there is none.
func commentOf(line []byte) string {
	_, comment, _ := cutComment(bytes.TrimSpace(line))
	words := slices.DeleteFunc(strings.Fields(string(comment)), func(word string) bool { return word == "#" })
	for at := 0; at < len(words); at++ { // of several the first one counts: without it the next one would
		if _, n := endIn(words[at+1:]); n > 0 && isUntil(words[at]) {
			words = slices.Delete(words, at, at+1+n)
			at--
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " # " + strings.Join(words, " ")
}

// ended reports whether all entries of a line have ended.
func ended(of []entry, now time.Time) bool {
	return len(of) > 0 && !slices.ContainsFunc(of, func(x entry) bool { return x.until.IsZero() || now.Before(x.until) })
}

// only reports whether a line has entries, and all of them are about exactly this host.
func only(of []entry, h lookup.Host) bool {
	return len(of) > 0 && !slices.ContainsFunc(of, func(x entry) bool { return string(x.name) != h.String() })
}

// permanent reports whether an entry is for ever, does what the list is for, and holds for
// the names below its name too.
func permanent(of []entry, c Config) bool {
	return slices.ContainsFunc(of, func(x entry) bool {
		return x.until.IsZero() && x.allow == c.Allow && (x.scope == tree || isIP(string(x.name)))
	})
}

func isEmptyOnPurpose(line []byte) bool {
	return string(bytes.TrimSpace(line)) == emptyOnPurpose
}

// newlineOf returns the line break of the first line.
func newlineOf(text []byte) string {
	if first, _, ok := bytes.Cut(text, []byte("\n")); ok && bytes.HasSuffix(first, []byte("\r")) {
		return "\r\n"
	}
	return "\n"
}

// shortText returns a line as messages quote it.
func shortText(line []byte) string { return lineOf(0, line).Text }
