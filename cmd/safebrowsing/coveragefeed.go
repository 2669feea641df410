package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// A feed is a file of URLs in one of the forms below. It is read line by line in constant memory, and
// what cannot be read is told with its line and skipped.
//
//	lines    the first word of each line: OpenPhish, URLhaus as text
//	csv      a column, by the name in the first line or in a comment: URLhaus, PhishTank, sqlite3 -csv
//	squid    the native access.log of Squid
//	common   the common log format of proxies, which Squid and Apache write, too
//	json     each object with a "url": the history of Chrome from Google Takeout, PhishTank, URLhaus; an array of URLs

// feedForms are the names of the forms, which are recognised by the first line.
var feedForms = []string{"lines", "csv", "squid", "common", "json"}

// feedEntry is what one line has. Err says why it has no URL.
type feedEntry struct {
	Line int // from 1; of JSON the number of the object
	URL  string
	At   time.Time // zero: not given
	Err  error
}

// feedReader says how a feed is read. The zero feedReader recognises all forms.
type feedReader struct {
	Form   string // "": by the first line
	Column string // of csv: the name or, from 1, the number of the column with the URL; "": the one named url
	Time   string // of csv: likewise of the time
}

// maxFeedLine is the most bytes of a line.
const maxFeedLine = 1 << 20

// read calls entry for each line until it returns false.
func (f feedReader) read(r io.Reader, entry func(feedEntry) bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	head, _ := in.Peek(512)
	if err := ownlist.Usable(head); err != nil { // among other bytes there are words with a dot
		entry(feedEntry{Line: 1, Err: err})
		return nil
	}
	if begin, _ := in.Peek(3); string(begin) == "\uFEFF" {
		_, _ = in.Discard(3)
	}
	if f.Form == "json" || f.Form == "" && beginsJSON(in) {
		return readJSON(in, entry)
	}
	lines := &feedLines{feedReader: f}
	if f.Form != "" && f.Form != "csv" {
		lines.parse = parsers[f.Form]
	}
	for n := 1; ; n++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) && line == "" {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLongLine) {
			return fmt.Errorf("reading line %d: %w", n, err)
		}
		e, ok := feedEntry{Err: err}, true
		if !errors.Is(err, errLongLine) {
			e, ok = lines.next(strings.TrimSpace(line))
		}
		e.Line = n
		if ok && !entry(e) {
			return nil
		}
	}
}

var errLongLine = fmt.Errorf("longer than %d bytes", maxFeedLine)

// readLine returns the next line. The rest of one that is too long is skipped.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line) <= maxFeedLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case len(line) > maxFeedLine+1 && (err == nil || errors.Is(err, io.EOF)):
			return "", errLongLine
		default:
			return string(line), err
		}
	}
}

// feedLines reads the lines of a feed one after the other.
type feedLines struct {
	feedReader
	parse   func(line string) (url string, at time.Time, err error) // nil: the form is not known yet
	columns []string                                                // of csv, that a comment names
}

// next returns what a line has; ok is false for comments and what names columns.
func (l *feedLines) next(line string) (e feedEntry, ok bool) {
	switch comment, is := strings.CutPrefix(line, "#"); {
	case line == "":
		return e, false
	case is:
		if names := cellsOf(strings.TrimLeft(comment, "# "), ','); l.parse == nil && isHeader(names, l.Column) {
			l.columns = names
		}
		return e, false
	}
	if l.parse == nil {
		header, err := l.recognise(line)
		if err != nil {
			return feedEntry{Err: err}, true
		}
		if header {
			return e, false
		}
	}
	e.URL, e.At, e.Err = l.parse(line)
	return e, true
}

// recognise sets how lines are parsed, by the first one. It reports whether that only names columns.
func (l *feedLines) recognise(line string) (header bool, err error) {
	for _, form := range []string{"squid", "common"} {
		if _, _, err := parsers[form](line); l.Form == "" && l.Column == "" && l.columns == nil && !errors.Is(err, errOtherForm) {
			l.parse = parsers[form]
			return false, nil
		}
	}
	if l.columns != nil {
		return false, l.useCSV(l.columns, ',')
	}
	for _, comma := range []rune{',', ';', '\t', '|'} {
		if cells := cellsOf(line, comma); isHeader(cells, l.Column) {
			return true, l.useCSV(cells, comma)
		}
	}
	if l.Form == "csv" || l.Column != "" || strings.HasPrefix(line, `"`) {
		return false, l.guessCSV(line)
	}
	if !hasScheme(line) && l.guessCSV(line) == nil {
		return false, nil
	}
	l.parse = parsers["lines"]
	return false, nil
}

// guessCSV uses the column that has a URL in the first line, or the one that Column numbers.
func (l *feedLines) guessCSV(line string) error {
	comma, most := ',', 0
	for _, c := range []rune{',', ';', '\t', '|'} {
		if n := strings.Count(line, string(c)); n > most {
			comma, most = c, n
		}
	}
	cells := cellsOf(line, comma)
	at := slices.IndexFunc(cells, hasScheme)
	if l.Column == "" && at < 0 {
		return errors.New("no column is named url, and none has a URL: name it with -column")
	}
	if l.Column != "" {
		return l.useCSV(cells, comma)
	}
	names := make([]string, len(cells))
	names[at] = "url"
	return l.useCSV(names, comma)
}

// useCSV parses the lines that follow by columns.
func (l *feedLines) useCSV(names []string, comma rune) error {
	at, err := columnOf(names, l.Column, "url")
	if err != nil {
		return err
	}
	when, err := columnOf(names, l.Time, timeColumns...)
	if err != nil && l.Time != "" {
		return err
	}
	l.parse = func(line string) (string, time.Time, error) {
		cells := cellsOf(line, comma)
		if at >= len(cells) {
			return "", time.Time{}, fmt.Errorf("it has %d columns, and the URL is in number %d", len(cells), at+1)
		}
		t := time.Time{}
		if when >= 0 && when < len(cells) {
			t = timeOf(cells[when])
		}
		return strings.TrimSpace(cells[at]), t, nil
	}
	return nil
}

// timeColumns are the names that feeds have for the time when they took a URL up, or a browser visited it.
var timeColumns = []string{"dateadded", "date_added", "submission_time", "first_seen", "firstseen", "last_visit_date", "last_visit_time", "visit_time", "time_usec", "timestamp", "time", "date"}

// columnOf returns the index of the column that wanted names or numbers, or of the first that is usual.
func columnOf(names []string, wanted string, usual ...string) (int, error) {
	if n, err := strconv.Atoi(wanted); err == nil {
		if n < 1 {
			return -1, fmt.Errorf("%q is not the number of a column: the first is 1", wanted)
		}
		return n - 1, nil
	}
	if wanted != "" {
		usual = []string{wanted}
	}
	for _, name := range usual {
		if at := slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), name) }); at >= 0 {
			return at, nil
		}
	}
	return -1, fmt.Errorf("there is no column %q, only %q", strings.Join(usual, " or "), names)
}

// isHeader reports whether cells are the names of columns, one for the URL.
func isHeader(cells []string, wanted string) bool {
	if _, err := strconv.Atoi(wanted); err == nil {
		wanted = ""
	}
	at, err := columnOf(cells, wanted, "url")
	return err == nil && (len(cells) > 1 || at == 0 && strings.EqualFold(strings.TrimSpace(cells[0]), "url"))
}

// cellsOf splits a line of CSV (RFC 4180). What is quoted wrongly is taken as it is. A cell does not go
// on in the next line.
func cellsOf(line string, comma rune) []string {
	r := csv.NewReader(strings.NewReader(line))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord, r.TrimLeadingSpace = comma, true, -1, comma != '\t'
	cells, err := r.Read()
	if err != nil {
		return []string{line}
	}
	return cells
}

// errOtherForm says that a line is not in a form.
var errOtherForm = errors.New("the line is not in this form")

// parsers parse a line of the forms that need no names of columns.
var parsers = map[string]func(line string) (string, time.Time, error){
	"lines":  func(line string) (string, time.Time, error) { return strings.Fields(line)[0], time.Time{}, nil },
	"squid":  parseSquid,
	"common": parseCommon,
}

// parseSquid reads a line of Squid's native log: time elapsed client code/status bytes method URL user
// hierarchy/peer type (https://wiki.squid-cache.org/Features/LogFormat).
func parseSquid(line string) (string, time.Time, error) {
	fields := strings.Fields(line)
	if len(fields) < 7 || !strings.Contains(fields[0], ".") || !strings.Contains(fields[3], "/") {
		return "", time.Time{}, errOtherForm
	}
	at := timeOf(fields[0])
	if _, err := strconv.Atoi(fields[1]); err != nil || at.IsZero() {
		return "", time.Time{}, errOtherForm
	}
	return requested(fields[5], fields[6]), at, nil
}

// parseCommon reads a line of the common log format: client ident user [time] "METHOD URL VERSION"
// status bytes (https://httpd.apache.org/docs/2.4/logs.html#common).
func parseCommon(line string) (string, time.Time, error) {
	_, rest, ok := strings.Cut(line, " [")
	when, rest, ok2 := strings.Cut(rest, `] "`)
	request, _, ok3 := strings.Cut(rest, `" `)
	if !ok || !ok2 || !ok3 {
		return "", time.Time{}, errOtherForm
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", when)
	fields := strings.Fields(request)
	if err != nil {
		return "", time.Time{}, errOtherForm
	}
	if len(fields) < 2 || strings.HasPrefix(fields[1], "/") {
		return "", at, errors.New("no host in the request: this is not a proxy's log")
	}
	return requested(fields[0], fields[1]), at, nil
}

// requested returns the URL of a request to a proxy. CONNECT has host and port only (RFC 9110, section
// 9.3.6): of HTTPS a proxy sees no path.
func requested(method, target string) string {
	if method == "CONNECT" {
		return "https://" + target + "/"
	}
	return target
}

// hasScheme reports whether a text begins as a URL.
func hasScheme(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && scheme != "" && len(scheme) <= 12 && !strings.ContainsAny(scheme, " ,;|\t\"/?")
}

// beginsJSON reports whether a feed begins with an object or an array of objects or strings.
func beginsJSON(in *bufio.Reader) bool {
	begin, _ := in.Peek(4096)
	begin = bytes.TrimSpace(begin)
	if rest, ok := bytes.CutPrefix(begin, []byte("[")); ok {
		begin = bytes.TrimSpace(rest)
		if bytes.HasPrefix(begin, []byte(`"`)) {
			return true
		}
	}
	return bytes.HasPrefix(begin, []byte("{"))
}

// jsonObject is an object that is being read, or an array.
type jsonObject struct {
	key   string // that comes next has a value; "": a key comes next
	array bool
	entry feedEntry
}

// readJSON calls entry for each object with a member url, however deep it is, and for each string of an array
// of URLs. The time of an object is the first of timeColumns that it has.
func readJSON(in io.Reader, entry func(feedEntry) bool) error {
	d := json.NewDecoder(in)
	d.UseNumber()
	var open []jsonObject
	for n := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			entry(feedEntry{Line: n + 1, Err: fmt.Errorf("the rest is not JSON: %w", err)})
			return nil
		}
		delim, _ := token.(json.Delim)
		switch delim {
		case '{', '[':
			if len(open) == maxDepth {
				return fmt.Errorf("JSON with more than %d levels", maxDepth)
			}
			open = append(open, jsonObject{array: delim == '['})
			continue
		case '}', ']':
			done := open[len(open)-1]
			open = open[:len(open)-1]
			if done.entry.URL != "" {
				n++
				if done.entry.Line = n; !entry(done.entry) {
					return nil
				}
			}
		}
		if text, ok := token.(string); ok && len(open) == 1 && open[0].array {
			if n++; !entry(feedEntry{Line: n, URL: text}) {
				return nil
			}
		}
		if len(open) > 0 {
			open[len(open)-1].take(token)
		}
	}
}

// maxDepth is the most levels of JSON.
const maxDepth = 64

// take notes a key, or the value of one.
func (o *jsonObject) take(token json.Token) {
	text, _ := token.(string)
	switch {
	case o.array:
	case o.key == "":
		o.key = text
		if text == "" {
			o.key = "-" // also the empty key has a value
		}
	default:
		if number, ok := token.(json.Number); ok {
			text = number.String()
		}
		if strings.EqualFold(o.key, "url") {
			o.entry.URL = text
		}
		if o.entry.At.IsZero() && slices.Contains(timeColumns, strings.ToLower(o.key)) {
			o.entry.At = timeOf(text)
		}
		o.key = ""
	}
}

// timeForms are the forms of times in feeds. Without a zone they are UTC.
var timeForms = []string{time.RFC3339, time.DateTime + " MST", time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateOnly}

// timeOf returns the time of a text, or the zero time. A number counts, by its size, in seconds, with
// a fraction or not, in milliseconds or microseconds since 1970, or in microseconds since 1601 as in the
// history of Chrome.
func timeOf(text string) time.Time {
	text = strings.TrimSpace(text)
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			return t
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	switch {
	case n < 1e11:
		ms, _ := strconv.ParseInt((fraction + "000")[:3], 10, 64)
		return time.Unix(n, ms*int64(time.Millisecond))
	case n < 1e14:
		return time.UnixMilli(n)
	case n < 1e16:
		return time.UnixMicro(n)
	}
	const since1601 = 11_644_473_600_000_000 // microseconds until 1970
	return time.UnixMicro(n - since1601)
}
