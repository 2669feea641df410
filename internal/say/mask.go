// Package say is what all texts for people share: the log, the version, "did you mean", and that no
// secret is in them. What looks like an API key or a token is replaced where texts are made, and
// not for each word that may be a secret:
//
//	config.Parse ──▶ MaskedError ──┐
//	log line ──────▶ Log ──────────┼──▶ Masked
//	command ───────▶ MaskedWriter ─┘
package say

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	golog "log"
	"regexp"
	"strings"
)

// Plugin is the word of the Corefile, and begins the names of metrics.
const Plugin = "safebrowsing"

// The words for what is left out.
const (
	key    = "(the key)"
	token  = "(the token)"
	secret = "(the secret)"
)

// kinds are the forms of secrets, and what is written for them. A host can look like the
// first two, in lower case: see isHost.
//
//   - An API key of Google is AIza and 35 letters, digits, - and _. A part of one is masked, too.
//   - An access token begins with ya29. (Google Cloud, "Token types").
//   - The file of an OAuth client or of a service account has a private key, a client's secret
//     (GOCSPX-), or a refresh token (1//).
//   - What a server sends unasked is in a line of package net/http, and may be any key that it knows.
var kinds = []struct {
	begins string // in lower case; without it there is no match
	form   *regexp.Regexp
	word   string
}{
	{"aiza", regexp.MustCompile(`(?i)aiza[0-9a-z_-]{10,}`), key},
	{"ya29.", regexp.MustCompile(`(?i)ya29\.[0-9a-z_.~+/-]{6,}`), token},
	{"gocspx-", regexp.MustCompile(`(?i)gocspx-[0-9a-z_-]{10,}`), secret},
	{"1//", regexp.MustCompile(`\b1//[0-9A-Za-z_-]{20,}`), token},
	{"-----begin", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), secret},
	{"private_key", regexp.MustCompile(`(\\*"private_key(?:_id)?\\*"\s*:\s*\\*")(?:` + quoted + `(\\*")|\(the secret\)|\S*)`), "${1}" + secret + "${2}"},
	{"idle http channel", regexp.MustCompile(`(idle HTTP channel starting with )"(?:[^"\\]|\\.)*"`), "${1}(what the server sent)"},
}

// quoted is a text up to the quote that ends it, whose backslashes are not in it. What is masked must leave that, in JSON
// that quotes JSON too: a client may ask for a name with the beginning of such a text.
const quoted = `(?:\\+[^"\\]|[^"\\])*`

// lengthOfKey is the number of bytes of an API key of Google.
const lengthOfKey = 39

// IsKey reports whether a text is an API key of Google, by its form.
func IsKey(text string) bool { return len(text) == lengthOfKey && fullKey.MatchString(text) }

var fullKey = regexp.MustCompile(`^AIza[0-9A-Za-z_-]{35}$`)

// HasSecret reports whether Masked would replace a part of a text.
func HasSecret(text string) bool { return Masked(text) != text }

// Masked returns a text without what looks like a key or a token. A text without one is
// returned as it is, in about 0.1 µs for a log line.
func Masked(text string) string {
	for _, k := range kinds {
		if !hasFold(text, k.begins) {
			continue
		}
		if strings.Contains(k.word, "$") {
			text = k.form.ReplaceAllString(text, k.word)
			continue
		}
		text = k.form.ReplaceAllStringFunc(text, func(found string) string {
			if isHost(found) {
				return found
			}
			return k.word
		})
	}
	return text
}

// isHost reports whether what looks like a secret may be a host instead, such as
// aizawa-dental.example: it is in lower case, and shorter than a key.
func isHost(found string) bool {
	return len(found) < lengthOfKey && found == strings.ToLower(found)
}

// hasFold reports whether a text holds another one, which is in lower case, whatever the case.
// It does not allocate.
func hasFold(text, lower string) bool {
	for i := 0; i+len(lower) <= len(text); i++ {
		if c := text[i]; (c == lower[0] || c|0x20 == lower[0]) && strings.EqualFold(text[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}

// MaskedError returns an error with the text of another one, masked; nil for nil. errors.Is and
// errors.As see the other one.
func MaskedError(err error) error {
	if err == nil || !HasSecret(err.Error()) {
		return err
	}
	return masked{err}
}

type masked struct{ err error }

// Error implements error.
func (m masked) Error() string { return Masked(m.err.Error()) }

// Unwrap lets errors.Is and errors.As see the error.
func (m masked) Unwrap() error { return m.err }

// MaskedWriter masks what is written to W. Each Write is masked by itself, so a secret must not be
// split over two. It is as safe for concurrent use as W.
type MaskedWriter struct{ W io.Writer }

// Write implements io.Writer.
func (w MaskedWriter) Write(p []byte) (int, error) {
	text := string(p)
	if clean := Masked(text); clean != text {
		if _, err := io.WriteString(w.W, clean); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return w.W.Write(p)
}

// Log writes log lines, masked, each of them one line that is safe for a terminal. It is safe for concurrent use.
type Log struct{ to Lines }

// Lines is what writes them, such as the log of CoreDNS for a plugin. It must be safe for concurrent use.
type Lines interface {
	Debug(args ...any)
	Info(args ...any)
	Warning(args ...any)
	Error(args ...any)
}

// NewLog returns a log.
func NewLog(to Lines) Log { return Log{to} }

// inOneLine joins the lines of a text, such as of several errors.
var inOneLine = strings.NewReplacer("\n", "; ", "\t", " ")

// maxLine is the most bytes of a line of the log: one may quote what others send.
const maxLine = 8 << 10

// line returns a text as a line of the log.
func line(text string) string {
	if text = inOneLine.Replace(Masked(text)); len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return Shown(text)
}

// Debugf logs a line for who looks for a fault; debug must be set.
func (l Log) Debugf(format string, args ...any) {
	l.to.Debug(Masked(fmt.Sprintf(format, args...)))
}

// Info logs a line about what is as it should be.
func (l Log) Info(args ...any) { l.to.Info(line(fmt.Sprint(args...))) }

// Infof is Info with a format.
func (l Log) Infof(format string, args ...any) { l.to.Info(line(fmt.Sprintf(format, args...))) }

// Warning logs a line about what protects less than it could.
func (l Log) Warning(args ...any) { l.to.Warning(line(fmt.Sprint(args...))) }

// Warningf is Warning with a format.
func (l Log) Warningf(format string, args ...any) { l.to.Warning(line(fmt.Sprintf(format, args...))) }

// Errorf logs a line about what does not work.
func (l Log) Errorf(format string, args ...any) { l.to.Error(line(fmt.Sprintf(format, args...))) }

// JSONTo is where JSON writes; nil: where package log does. It must not change once something may be logged.
var JSONTo io.Writer

// JSON logs a value as a line that is JSON from its first byte on: where CoreDNS writes its log, without the
// date, the level and the plugin's name.
func (l Log) JSON(line any) {
	text, err := json.Marshal(line)
	if err != nil { // unreachable: all fields are texts, numbers and times with a year of four digits
		l.Errorf("Cannot log a line as JSON: %v", err)
		return
	}
	golog.New(cmp.Or(JSONTo, golog.Writer()), "", 0).Println(Masked(string(text))) // no date in front, whatever the flags
}
