package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/mask"
)

// console prints the findings of a command.
type console struct {
	w, errOut io.Writer
	json      bool  // print findings as JSON
	err       error // the first error of writing to w; nothing is printed after it
}

func newConsole(c *cli.Command) *console {
	return &console{w: c.Root().Writer, errOut: c.Root().ErrWriter, json: c.Bool("json")}
}

// object prints one line of JSON.
func (o *console) object(v any) {
	if o.err != nil {
		return
	}
	e := json.NewEncoder(o.w)
	e.SetEscapeHTML(false)
	o.err = e.Encode(v)
}

// printf prints text. Text that others wrote must go through shown first.
func (o *console) printf(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

// isTerminal reports whether a person may be reading w. It is also true for /dev/null,
// which does no harm.
func isTerminal(w io.Writer) bool {
	if masked, ok := w.(mask.Writer); ok {
		w = masked.W
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// complain prints one line to standard error, so that it is not among the findings.
func (o *console) complain(format string, args ...any) {
	fmt.Fprintln(o.errOut, "safebrowsing:", shown(fmt.Sprintf(format, args...)))
}

// end returns the error with which a command ends after its last finding.
func (o *console) end(bad bool) error {
	if o.err != nil {
		return fmt.Errorf("printing: %w", o.err)
	}
	if bad {
		return errBadNews
	}
	return nil
}

// text is a string in JSON that may hold any bytes. Those that are not UTF-8
// are escaped as in a canonical host.
type text string

// MarshalText implements encoding.TextMarshaler.
func (t text) MarshalText() ([]byte, error) {
	return []byte(escaped(string(t), func(rune) bool { return true })), nil
}

// shown returns text that others wrote, safe for a terminal: it escapes control characters.
func shown(s string) string { return escaped(s, unicode.IsPrint) }

// escaped replaces bytes that are not UTF-8, and runes for which keep is false, by %XX.
func escaped(s string, keep func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !keep(r) {
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// stamp formats a time by RFC 3339, in UTC. It returns "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// plural returns the form of a word for a number.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// count returns a number with its word, such as "1 entry" and "2 entries".
func count(n int, one, many string) string { return fmt.Sprintf("%d %s", n, plural(n, one, many)) }
