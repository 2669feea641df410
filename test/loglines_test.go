package test

import (
	"bytes"
	golog "log"
	"slices"
	"strings"
	"sync"
	"testing"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// logLines collects what is logged.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// about returns the lines that hold a text.
func (l *logLines) about(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// errorsAbout returns the lines of errors that hold a text.
func (l *logLines) errorsAbout(text string) []string {
	return slices.DeleteFunc(l.about(text), func(line string) bool { return !strings.Contains(line, "[ERROR]") })
}

func captureLog(t *testing.T) *logLines {
	l := new(logLines)
	golog.SetOutput(l)
	t.Cleanup(clog.Discard)
	return l
}

// only returns the one line about a text.
func (l *logLines) only(t *testing.T, text string) string {
	t.Helper()
	got := l.about(text)
	if len(got) != 1 {
		t.Fatalf("Expected one line about %q, got %q of\n%s", text, got, strings.Join(l.about(""), ""))
	}
	return got[0]
}

// wantParts fails unless the line holds each of the parts.
func wantParts(t *testing.T, line string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Errorf("Expected %q in the line\n%s", part, line)
		}
	}
}
