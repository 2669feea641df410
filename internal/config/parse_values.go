package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin/pkg/durations"
)

// duration reads a duration from shortest to longest.
func duration(text string, shortest, longest time.Duration) (time.Duration, error) {
	d, err := durations.NewDurationFromArg(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as %s", text, short(min(longest, 12*time.Hour)))
	}
	unit := ""
	if _, err := strconv.Atoi(text); err == nil {
		unit = " (a number without a unit is seconds)"
	}
	switch {
	case d < shortest:
		return 0, fmt.Errorf("%q is less than %s%s", text, short(shortest), unit)
	case d > longest:
		return 0, fmt.Errorf("%q is more than %s, the longest that is allowed%s", text, short(longest), unit)
	}
	return d, nil
}

// short returns a duration as people write it: 30m, not 30m0s, and 12h, not 12h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// number reads a whole number from lowest to highest.
func number(text string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		return 0, errors.New(strconv.Quote(text) + " is not a number from " + strconv.Itoa(lowest) + " to " + strconv.Itoa(highest))
	}
	return n, nil
}
