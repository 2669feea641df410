package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin/pkg/durations"
)

// duration reads a duration of at least least and at most most.
func duration(text string, least, most time.Duration) (time.Duration, error) {
	d, err := durations.NewDurationFromArg(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as %s", text, short(most))
	}
	unit := ""
	if _, err := strconv.Atoi(text); err == nil {
		unit = " (a number without a unit is seconds)"
	}
	switch {
	case d < least:
		return 0, fmt.Errorf("%q is less than %s%s", text, short(least), unit)
	case d > most:
		return 0, fmt.Errorf("%q is more than %s, the longest that is allowed%s", text, short(most), unit)
	}
	return d, nil
}

// short returns a duration as people write it: 30m, not 30m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

// number reads a whole number of at least least and at most most.
func number(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, errors.New(strconv.Quote(text) + " is not a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return n, nil
}
