package main

import (
	"fmt"
	"strconv"
	"strings"
)

// tomlEntry is a key of a file in TOML, with the names of its tables, and its value or the values of its array.
type tomlEntry struct {
	key    string // such as "dns.upstreams"
	values []tomlValue
}

// tomlValue is a string without its quotes, or another value as it is written.
type tomlValue struct {
	line int
	text string
}

// tomlReader reads what pihole-FTL writes: tables, and keys with strings of one line, numbers, booleans and
// arrays of them (https://toml.io/en/v1.0.0). It is an error if there is anything else.
type tomlReader struct {
	text string
	at   int
	line int
}

// tomlEntries returns the keys of a file in its order.
func tomlEntries(text string) (all []tomlEntry, err error) {
	r := &tomlReader{text: text, line: 1}
	table := ""
	for r.skip(true); r.at < len(r.text); r.skip(true) {
		if r.next() == '[' {
			r.at++
			name, err := r.until(']')
			if err != nil {
				return nil, err
			}
			table = name + "."
			continue
		}
		name, err := r.until('=')
		if err != nil {
			return nil, err
		}
		e := tomlEntry{key: table + name}
		if e.values, err = r.value(); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (r *tomlReader) wrong(what string) error { return fmt.Errorf("line %d: %s", r.line, what) }

// next returns the byte that comes, 0 at the end.
func (r *tomlReader) next() byte {
	if r.at == len(r.text) {
		return 0
	}
	return r.text[r.at]
}

// skip skips blanks and a comment, and with lines the ends of lines, too.
func (r *tomlReader) skip(lines bool) {
	for {
		switch c := r.next(); {
		case c == ' ' || c == '\t' || c == '\r':
			r.at++
		case c == '#':
			comment, _, _ := strings.Cut(r.text[r.at:], "\n")
			r.at += len(comment)
		case c == '\n' && lines:
			r.at++
			r.line++
		default:
			return
		}
	}
}

// until returns the text before a byte that is on the same line, without blanks around it.
func (r *tomlReader) until(end byte) (string, error) {
	line, _, _ := strings.Cut(r.text[r.at:], "\n")
	text, _, ok := strings.Cut(line, string(end))
	if !ok {
		return "", r.wrong("no " + string(end))
	}
	r.at += len(text) + 1
	return strings.TrimSpace(text), nil
}

// value reads a value, or the values of an array.
func (r *tomlReader) value() (all []tomlValue, err error) {
	r.skip(false)
	if r.next() != '[' {
		one, err := r.scalar()
		return []tomlValue{one}, err
	}
	r.at++
	for {
		r.skip(true)
		switch r.next() {
		case ']':
			r.at++
			return all, nil
		case ',':
			r.at++
			continue
		}
		one, err := r.scalar()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// scalar reads a string, a number or a boolean.
func (r *tomlReader) scalar() (tomlValue, error) {
	rest, _, _ := strings.Cut(r.text[r.at:], "\n")
	v := tomlValue{line: r.line}
	switch r.next() {
	case '"':
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil || strings.HasPrefix(rest, `"""`) {
			return v, r.wrong("no string of one line")
		}
		r.at += len(quoted)
		v.text, err = strconv.Unquote(quoted)
		return v, err
	case '\'':
		text, _, ok := strings.Cut(rest[1:], "'")
		if !ok || strings.HasPrefix(rest, "'''") {
			return v, r.wrong("no string of one line")
		}
		r.at += len(text) + 2
		v.text = text
		return v, nil
	}
	end := strings.IndexAny(rest, " \t\r,]#")
	if end < 0 {
		end = len(rest)
	}
	if v.text = rest[:end]; v.text == "" || strings.ContainsAny(v.text, "[{=\"'") {
		return v, r.wrong("no value that Pi-hole writes")
	}
	r.at += end
	return v, nil
}
