package ownlist

import (
	"bytes"
	"net/netip"
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
	lower := bytes.ToLower(text)
	for _, name := range []string{"adblock", "adguard", "ublock"} {
		if bytes.HasPrefix(lower[1:], []byte(name)) {
			return true
		}
	}
	return false
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
	if !p.allow || !bytes.Contains(comment, []byte("until")) {
		return time.Time{}, true
	}
	words := bytes.Fields(comment)
	for i, word := range words {
		if string(word) != "until" {
			continue
		}
		date := ""
		if i+1 < len(words) {
			date = string(bytes.TrimRight(words[i+1], ".,;:)"))
		}
		if end, err := ParseUntil(date, time.Local); err == nil {
			return end, true
		}
		if i == 0 || date != "" && isDigit(date[0]) {
			return time.Time{}, false // in other places "until" may be part of a sentence
		}
	}
	return time.Time{}, true
}

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
