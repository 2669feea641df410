package say

import (
	"fmt"
	"time"
)

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
