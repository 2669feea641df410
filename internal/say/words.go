package say

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Plural returns one if n is 1, else many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Count returns a number with its word, such as "1 entry" and "2 entries".
func Count(n int, one, many string) string { return fmt.Sprintf("%d %s", n, Plural(n, one, many)) }

// Age prints a duration, to two units at most.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "under a minute"
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

// Number prints a number with commas, as 6,812,345.
func Number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// titles are what Google's lists hold, by the part of their names before the width.
var titles = map[string]string{
	"se": "phishing", "mw": "malware", "uws": "unwanted software", "uwsa": "unwanted apps", "pha": "harmful apps", "gc": "likely safe",
}

// TitleOf returns what a list of a service holds, in words; of others the name.
func TitleOf(list string) string {
	kind, _, _ := strings.Cut(list, "-")
	if title := titles[kind]; title != "" && !strings.ContainsAny(list, "/.") {
		return title
	}
	return list
}

// TimeForm is how texts for people have a time, which is local: as logs of the system and clocks on
// the wall have it, with the zone. Files, JSON and answers by DNS have RFC 3339 in UTC instead.
const TimeForm = "2006-01-02 15:04:05 MST"

// Time returns a time as texts for people have it, see TimeForm; "never" for the zero time.
// It is safe for concurrent use.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format(TimeForm)
}

// ByClock returns a time by the clock that shows now, if that has been set since, as on a router whose clock begins in the
// past: to a second, since both clocks of a machine always differ by some nanoseconds, which is no other time. The zero
// time stays. It is safe for concurrent use.
func ByClock(t, now time.Time) time.Time {
	if at := now.Add(t.Sub(now)).Round(time.Second); !t.IsZero() && at.Sub(t.Round(0)).Abs() >= time.Second {
		return at
	}
	return t
}

// Nearest returns the known word nearest to a mistyped one, for the "did you mean" of an error:
// that with the fewest edits from word, and their number. An edit
// inserts, deletes or replaces one byte, or swaps two neighbours; case does not count. If
// several words have as few edits, the one with the longest common beginning wins, then the
// first one. Without known words it returns "". It is safe for concurrent use.
func Nearest(word string, known []string) (nearest string, edits int) {
	word = strings.ToLower(word)
	common := 0
	for i, k := range known {
		d, c := distance(word, strings.ToLower(k)), commonPrefix(word, strings.ToLower(k))
		if i == 0 || d < edits || d == edits && c > common {
			nearest, edits, common = k, d, c
		}
	}
	return nearest, edits
}

// distance is the optimal string alignment distance of a and b, in bytes.
func distance(a, b string) int {
	var before, above, row []int // rows i-2, i-1 and i of the table
	for i := 0; i <= len(a); i++ {
		before, above, row = above, row, make([]int, len(b)+1)
		for j := range row {
			switch {
			case i == 0:
				row[j] = j
			case j == 0:
				row[j] = i
			default:
				row[j] = min(above[j], row[j-1], above[j-1]) + 1
				if a[i-1] == b[j-1] {
					row[j] = above[j-1]
				}
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					row[j] = min(row[j], before[j-2]+1)
				}
			}
		}
	}
	return row[len(b)]
}

// commonPrefix returns the number of bytes with which a and b both begin.
func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Stamp formats a time by RFC 3339, in UTC. It returns "" for the zero time.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Size returns a number of bytes in words.
func Size(n uint64) string {
	switch {
	case n < 1_000:
		return fmt.Sprintf("%d bytes", n)
	case n < 999_950: // more is rounded to a thousand
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 999_950_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// Duration reads a duration as people write it, such as 30m or 7d, of at least a second.
func Duration(written string, longest time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(written)
	if days, ok := strings.CutSuffix(written, "d"); ok {
		var n int64 // an int has 32 bits on some machines
		n, err = strconv.ParseInt(days, 10, 64)
		d = time.Duration(max(0, min(n, 1<<16))) * 24 * time.Hour
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as 30m, 2h or 7d", written)
	case d < time.Second:
		return 0, fmt.Errorf("%q is less than a second", written)
	case d > longest:
		return 0, fmt.Errorf("%q is more than %d days", written, longest/(24*time.Hour))
	}
	return d, nil
}

// Text is a string in JSON that may hold any bytes. Those that are not UTF-8
// are escaped as in a canonical host.
type Text string

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) {
	return []byte(escaped(string(t), func(rune) bool { return true })), nil
}

// Shown returns text that others wrote, safe for a terminal: it escapes control characters.
func Shown(s string) string { return escaped(s, unicode.IsPrint) }

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
