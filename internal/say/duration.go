package say

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
