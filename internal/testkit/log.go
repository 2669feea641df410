package testkit

import (
	"cmp"
	"errors"
	golog "log"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Lines collects what is logged. It is safe for concurrent use.
type Lines struct{ Output }

// Capture returns what is logged from now on. When the test ends the log is
// discarded again.
func Capture(t testing.TB) *Lines {
	l := new(Lines)
	golog.SetOutput(l)
	t.Cleanup(clog.Discard)
	return l
}

// About returns the lines that hold a text.
func (l *Lines) About(text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Only returns the one line about a text.
func (l *Lines) Only(t testing.TB, text string) string {
	t.Helper()
	got := l.About(text)
	if len(got) != 1 {
		t.Fatalf("Expected one line about %q, got %q of\n%s", text, got, strings.Join(l.About(""), ""))
	}
	return got[0]
}

// Forget drops the lines so far.
func (l *Lines) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// WantParts fails the test unless the line holds each of the parts.
func WantParts(t testing.TB, line string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("Expected %q in the line\n%s", part, line)
		}
	}
}

// WantStart fails the test unless the text begins with start.
func WantStart(t testing.TB, text, start string) {
	t.Helper()
	if !strings.HasPrefix(text, start) {
		t.Errorf("Expected %q at the beginning of\n%s", start, text)
	}
}

// WantNone fails the test if the text holds one of the parts.
func WantNone(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("Expected no %q in\n%s", part, text)
		}
	}
}

// WantError fails the test unless there is an error that says each of the parts.
func WantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("Expected an error that says %q", parts)
		return
	}
	WantParts(t, err.Error(), parts...)
}

// Equal fails the test unless both are deeply equal. what says what they are.
func Equal[T any](t testing.TB, what any, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got\n%+v\nwant\n%+v", what, got, want)
	}
}

// Is fails the test unless an error is the one that is wanted; nil: unless there is none.
func Is(t testing.TB, what any, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v: got %v, want %v", what, err, want)
	}
}

// Between fails the test unless a value is in a range. Both ends belong to it.
func Between[T cmp.Ordered](t testing.TB, what any, got, least, most T) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%v: got %v, want %v to %v", what, got, least, most)
	}
}

// LocalTimes returns an expected text with its times by RFC 3339 as texts for people have them: local.
func LocalTimes(text string) string {
	return rfc3339.ReplaceAllStringFunc(text, func(found string) string {
		t, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return t.Local().Format("2006-01-02 15:04:05 MST")
	})
}

var rfc3339 = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Metric returns the sum of the samples of a family of the plugin that have a label.
func Metric(t testing.TB, name, label, value string) (sum float64) {
	t.Helper()
	eachSample(t, name, label, value, func(m *dto.Metric) { sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return sum
}

// CountSamples returns how many samples of a family of the plugin have a label.
func CountSamples(t testing.TB, name, label, value string) (n int) {
	t.Helper()
	eachSample(t, name, label, value, func(*dto.Metric) { n++ })
	return n
}

// eachSample calls f with each sample of a family of the plugin that has a label.
func eachSample(t testing.TB, name, label, value string, f func(*dto.Metric)) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	Must(t, err)
	for _, family := range families {
		if family.GetName() != "coredns_safebrowsing_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					f(m)
				}
			}
		}
	}
}
