package ownlist

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// parser parses lines in the order of their file. It is not safe for concurrent use.
type parser struct {
	allow     bool          // the list is an allow list
	sinkholes [2]netip.Addr // lines of hosts files with these addresses block too
	emit      func(entry)
	zone      zone // state over the lines of a zone file

	// Of the current line:
	until    time.Time
	response lookup.Response
	kind     kind // of an unsupported line

	buf    []byte   // reused by name
	fields [][]byte // reused by split
}

func newParser(k Config, emit func(entry)) *parser {
	return &parser{allow: k.Allow, sinkholes: [2]netip.Addr{k.IPv4, k.IPv6}, emit: emit}
}

// line parses one line and emits its entries. If one name of a line of a hosts file is
// bad, the line is bad, but the other names are emitted.
func (p *parser) line(raw []byte) outcome {
	text := bytes.TrimSpace(raw)
	if p.zone.continues(text) || len(text) == 0 {
		return nothing
	}
	p.until, p.response = time.Time{}, lookup.NXDOMAIN
	switch text[0] {
	case '#', '!', ';':
		return nothing
	case '/':
		return p.unsupported(slashKind(text))
	case '[':
		if isHeader(text) {
			return nothing
		}
	}
	if result, ok := p.dnsmasq(text); ok {
		return result
	}
	text, comment, ok := cutComment(text)
	if !ok {
		return p.unsupported(kindElement)
	}
	if p.until, ok = p.expiry(comment); !ok {
		return bad
	}
	switch {
	case text[0] == '|', bytes.HasPrefix(text, []byte("@@")):
		return p.adblock(text)
	case text[0] == '$':
		return p.directive(text)
	case bytes.IndexByte(text, ' ') < 0 && bytes.IndexByte(text, '\t') < 0:
		return p.single(text)
	}
	return p.words(text, raw[0] == ' ' || raw[0] == '\t')
}

// words parses a line of several words, from unbound.conf, a hosts file or a zone file.
func (p *parser) words(text []byte, indented bool) outcome {
	p.split(text)
	if result, ok := p.unbound(p.fields); ok {
		return result
	}
	if isAddress, blocks := p.address(p.fields[0]); isAddress {
		return p.hosts(p.fields[1:], blocks || p.allow)
	}
	return p.record(p.fields, indented)
}

// isHeader recognises the first line of adblock lists: [Adblock Plus 2.0].
func isHeader(text []byte) bool {
	lower := bytes.ToLower(text[1:])
	return bytes.HasPrefix(lower, []byte("adblock")) || bytes.HasPrefix(lower, []byte("adguard")) || bytes.HasPrefix(lower, []byte("ublock"))
}

// slashKind returns the kind of an adblock rule that begins with a slash. If another
// slash ends it, before its options, it is a regular expression; otherwise a path.
func slashKind(text []byte) kind {
	if len(text) > 1 && (text[len(text)-1] == '/' || bytes.Contains(text, []byte("/$"))) {
		return kindRegexp
	}
	return kindURL
}

// cutComment splits a line at the '#' or ';' that begins a comment. After a URL a space
// must come before it. ok is false for adblock rules that hide elements of a page
// (example.com##.ad, example.com#@#.ad): they do not block the host.
func cutComment(text []byte) (before, comment []byte, ok bool) {
	url, first := false, true
	for i, c := range text {
		if c != '#' && c != ';' {
			continue
		}
		// A URL begins before its first '#', so one search is enough and keeps this linear.
		if first {
			url, first = bytes.Contains(text[:i], []byte("://")), false
		}
		space := text[i-1] == ' ' || text[i-1] == '\t' // i > 0: such a line is a comment
		if !space && c == '#' && i+1 < len(text) && bytes.IndexByte([]byte("#@?$%"), text[i+1]) >= 0 {
			return nil, nil, false
		}
		if space || !url {
			return bytes.TrimSpace(text[:i]), text[i+1:], true
		}
	}
	return text, nil, true
}

// expiry finds "until 2027-01-31" in the comment of a line of an allow list. It reads the
// date with ParseUntil, in the time zone of the machine. ok is false if the date is
// wrong: otherwise the entry would never expire.
func (p *parser) expiry(comment []byte) (end time.Time, ok bool) {
	if !p.allow || len(comment) == 0 {
		return time.Time{}, true
	}
	words := strings.Fields(string(comment))
	for i, word := range words {
		if !isUntil(word) {
			continue
		}
		if end, n := endIn(words[i+1:]); n > 0 {
			return end, true
		}
		if i == 0 && word == "until" || i+1 < len(words) && isDigit(words[i+1][0]) {
			return time.Time{}, false // in other places "until" may be part of a sentence
		}
	}
	return time.Time{}, true
}

// endIn reads the time that words begin with, as ParseUntil does, or a date and a time of day, and returns how many
// words it takes. 0: it is none.
func endIn(words []string) (end time.Time, n int) {
	const after = ".,;:)"
	if len(words) > 1 && !strings.ContainsAny(words[1], "+-") { // 18:00-19:00 is no offset
		if end, err := ParseUntil(words[0]+"T"+strings.TrimRight(words[1], after), nil); err == nil {
			return end, 2
		}
	}
	if len(words) > 0 {
		if end, err := ParseUntil(strings.TrimRight(words[0], after), nil); err == nil {
			return end, 1
		}
	}
	return time.Time{}, 0
}

// isUntil reports whether a word of a comment is until, as people write it: Until, until: or (until.
func isUntil(word string) bool { return strings.EqualFold(strings.Trim(word, "(:"), "until") }

// split sets p.fields to the words of text.
func (p *parser) split(text []byte) {
	p.fields = p.fields[:0]
	for len(text) > 0 {
		end := bytes.IndexAny(text, " \t")
		if end < 0 {
			end = len(text)
		}
		p.fields = append(p.fields, text[:end])
		text = bytes.TrimLeft(text[end:], " \t")
	}
}

// add emits the entry of a name as the line spells it.
func (p *parser) add(text []byte, scope scope, allow bool) outcome {
	name, ok := p.name(text)
	if !ok {
		return bad
	}
	p.say(name, scope, allow)
	return listed
}

// say emits the entry of a canonical name, with the expiry and the response of the line.
func (p *parser) say(name []byte, scope scope, allow bool) {
	p.emit(entry{name: name, scope: scope, allow: allow || p.allow, response: p.response, until: p.until})
}

// without returns a function for eachLine that skips lines with no entry of this name, and none that
// others depend on: directives and records that begin a zone. "" and addresses are in any line.
func (p *parser) without(entry string) func(lines []byte) bool {
	label, _, _ := strings.Cut(entry, ".")
	if label == "" || isIP(entry) {
		return nil
	}
	var lower []byte
	return func(lines []byte) bool {
		if p.zone.open {
			return false
		}
		lower = append(lower[:0], lines...)
		for i, c := range lower {
			switch {
			case 'A' <= c && c <= 'Z':
				lower[i] = c + 'a' - 'A'
			case c >= 0x80, c == '\\', c == '%', c == '@': // names that are written in another way
				return false
			}
		}
		for _, need := range []string{label, "$origin", " soa", "\tsoa"} {
			if bytes.Contains(lower, []byte(need)) {
				return false
			}
		}
		p.zone.owner = append(p.zone.owner[:0], "skipped.invalid"...) // of the next record without an owner
		return true
	}
}

// maxLine is the most bytes of a line that are parsed.
const maxLine = 4 << 10

// eachLine calls do for each line of r, numbered from 1, without the line break and
// without a byte order mark. The line is valid only during the call. A longer line than
// maxLine is cut, and long is set, so no file can use much memory. eachLine returns a
// notListError if r is not a list, or else the error of reading. It leaves out lines that skip, if
// not nil, says may be: skip is given many at once.
func eachLine(r io.Reader, skip func(lines []byte) bool, do func(number int, line []byte, long bool)) error {
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(sniffBytes) // ReadSlice returns the same error
	if e, ok := notList(head); ok {
		return e
	}
	looked := 0 // bytes before the lines that skip has not seen
	for number := 1; ; number++ {
		for skip != nil && looked == 0 {
			lines, _ := br.Peek(br.Size())
			if looked = bytes.LastIndexByte(lines, '\n') + 1; looked == 0 || !skip(lines[:looked]) {
				break
			}
			number += bytes.Count(lines[:looked], []byte("\n"))
			_, _ = br.Discard(looked) // they are buffered
			looked = 0
		}
		line, err := br.ReadSlice('\n')
		looked = max(0, looked-len(line))
		long := errors.Is(err, bufio.ErrBufferFull)
		if number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		line = bytes.TrimRight(line, "\r\n")
		if long = long || len(line) > maxLine; long {
			line = line[:maxLine]
		}
		if len(line) > 0 || err == nil {
			do(number, line, long)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// byteOrderMark begins texts of some programs, pages of web servers too.
var byteOrderMark = []byte("\uFEFF")

// sniffBytes is the most bytes that http.DetectContentType uses.
const sniffBytes = 512

// notListError says that a file is not a list: what it seems to be, and what the operator
// can do.
type notListError struct{ seems, cure string }

// Error implements error.
func (e notListError) Error() string { return "it " + e.seems + ": " + e.cure }

// notList returns what a file seems to be, from its first bytes, if it cannot be a list.
// A failed download often leaves an HTML page, and single words on that page would pass
// for names.
func notList(head []byte) (e notListError, ok bool) {
	for magic, format := range compressed {
		if bytes.HasPrefix(head, []byte(magic)) {
			return notListError{"is compressed (" + format + ")", "unpack it"}, true
		}
	}
	if len(head) > 10 && string(head[:3]) == "BZh" && string(head[4:10]) == "1AY&SY" { // byte 3 is the level
		return notListError{"is compressed (bzip2)", "unpack it"}, true
	}
	switch detected := http.DetectContentType(bytes.TrimPrefix(head, byteOrderMark)); {
	case strings.HasPrefix(detected, "text/html"), strings.HasPrefix(detected, "text/xml"):
		return notListError{"looks like an HTML page", "download the list again"}, true
	case strings.HasPrefix(detected, "text/plain; charset=utf-16"):
		return notListError{"is UTF-16", "save it as UTF-8"}, true
	}
	return notListError{}, false
}

// compressed maps the first bytes of a compressed file to its format.
var compressed = map[string]string{
	"\x1f\x8b": "gzip", "PK\x03\x04": "zip", "\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "7z\xbc\xaf\x27\x1c": "7z",
}

// maxName and maxLabel are the most bytes of a DNS name and of a label (RFC 1035 section
// 2.3.4). maxNameText is the most bytes of a name as a person writes it: a rune has up to
// four bytes, and becomes at least one byte of the name.
const (
	maxName     = 253
	maxLabel    = 63
	maxNameText = 4 * maxName
)

// letter maps each byte of a listed name to lower case, and every other byte to 0. It
// allows fewer bytes than lookup.ParseHost: prose and markup must be bad lines, not
// hosts.
var letter = func() (t [256]byte) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789-_.") {
		t[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c | 0x20
	}
	return t
}()

// name returns the canonical form of a name or an IP address that a person wrote, as
// lookup.ParseHost does. The result is valid until the next call.
func (p *parser) name(text []byte) ([]byte, bool) {
	if len(text) > maxNameText {
		return nil, false
	}
	p.buf = p.buf[:0]
	for _, c := range text {
		if letter[c] == 0 {
			return p.nameSlowly(text)
		}
		p.buf = append(p.buf, letter[c])
	}
	// A name with surplus dots, or one that may be an IPv4 address, needs ParseHost.
	last := p.buf[bytes.LastIndexByte(p.buf, '.')+1:]
	if len(last) == 0 || isDigit(last[0]) || p.buf[0] == '.' || bytes.Contains(p.buf, []byte("..")) {
		return p.nameSlowly(text)
	}
	return p.buf, fits(p.buf)
}

// nameSlowly is name for IP addresses and for names that are not canonical.
func (p *parser) nameSlowly(text []byte) ([]byte, bool) {
	if h, ok := address(text); ok {
		return append(p.buf[:0], h...), true
	}
	h, ok := lookup.ParseHost(string(text))
	if !ok {
		return nil, false
	}
	p.buf = append(p.buf[:0], h.String()...)
	for _, c := range p.buf {
		if letter[c] == 0 {
			return nil, false
		}
	}
	return p.buf, fits(p.buf)
}

// address returns the canonical form of an IPv6 address. The text may have brackets.
func address(text []byte) (string, bool) {
	if bytes.IndexByte(text, ':') < 0 {
		return "", false
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(string(text), "["), "]")
	h, ok := lookup.ParseHost("[" + bare + "]")
	return h.String(), ok
}

// fits reports whether a name is short enough for the DNS.
func fits(name []byte) bool {
	label := 0
	for _, c := range name {
		if label++; c == '.' {
			label = 0
		}
		if label > maxLabel {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxName
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isIP reports whether a canonical host is an IP literal, which has no parents.
func isIP(name string) bool {
	if name[0] == '[' {
		return true
	}
	dots := 0
	for i := len(name) - 1; i >= 0; i-- { // from the end: most names have a letter there
		switch c := name[i]; {
		case c == '.':
			dots++
		case !isDigit(c):
			return false
		}
	}
	return dots == 3
}

// isWhole reports whether h is the complete name of the query. FromQname drops labels that
// no URL can hold, and the name of the query is then below h. lookup does not export this
// fact, but FromQname of a complete name returns an equal Host.
func isWhole(h lookup.Host) bool {
	name := h.String()
	return name[0] == '[' || lookup.FromQname(name) == h
}

// untilLayouts are the layouts of ParseUntil with a time of day. A layout without a time
// zone uses loc.
var untilLayouts = []string{
	time.RFC3339,
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04",
}

// ParseUntil returns when an entry "until" text expires: the first moment at which it is
// no longer valid. Text is one word:
//
//	2027-01-31            the end of that day in loc
//	2027-01-31T18:00      that time in loc
//	2027-01-31T18:00:00Z  that time in its own time zone (RFC 3339)
//
// The result may be in the past; its time zone is the one of text. A nil loc is the time
// zone of the machine. It is safe for concurrent use.
func ParseUntil(text string, loc *time.Location) (time.Time, error) {
	if loc == nil {
		loc = time.Local
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil { // in UTC: where DST begins at midnight, a day has none
		end := time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, loc)
		if end.Day() == day.Day() { // the next day has none, and Date may go back
			_, end = end.ZoneBounds()
		}
		return end, nil
	}
	for _, layout := range untilLayouts {
		if t, err := time.ParseInLocation(layout, text, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a date such as 2027-01-31 nor a time such as 2027-01-31T18:00", text)
}
