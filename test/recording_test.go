package test

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// recorded returns what a recording of asciinema shows, without escape sequences. See
// https://docs.asciinema.org/manual/asciicast/v2/.
func recorded(t *testing.T, cast string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(cast), "\n")
	var header struct{ Version, Width, Height int }
	if err := json.Unmarshal([]byte(lines[0]), &header); err != nil || header.Version != 2 || header.Width == 0 || header.Height == 0 {
		t.Fatalf("Expected the header of a recording, got %s: %v", lines[0], err)
	}
	var text strings.Builder
	last := 0.0
	for _, line := range lines[1:] {
		var event []any
		if err := json.Unmarshal([]byte(line), &event); err != nil || len(event) != 3 || event[1] != "o" {
			t.Fatalf("Expected an event of output, got %s: %v", line, err)
		}
		if at := event[0].(float64); at < last {
			t.Errorf("Expected events in the order of time, got %v after %v", at, last)
		} else {
			last = at
		}
		text.WriteString(event[2].(string))
	}
	return regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(strings.ReplaceAll(text.String(), "\r\n", "\n"), "")
}

// Whoever changes what is typed must record it again, with .ci/record.
func TestTheRecordingShowsTheTour(t *testing.T) {
	tour, err := fs.ReadFile(repository, ".ci/tour")
	if err != nil {
		t.Fatal(err)
	}
	cast, err := fs.ReadFile(repository, "docs/pictures/tour.cast")
	if err != nil {
		t.Fatal(err)
	}
	seen := recorded(t, string(cast))
	commands := regexp.MustCompile(`(?m)^(?:show|background) (?:'(.*)'|"(.*)")$`).FindAllStringSubmatch(string(tour), -1)
	if len(commands) < 8 {
		t.Errorf("Expected to find the commands of the tour, got %q", commands)
	}
	for _, m := range commands {
		if command := m[1] + m[2]; !strings.Contains(seen, "$ "+command) {
			t.Errorf("Expected %q in the recording: make it again with .ci/record", command)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^want '([^'^$]+)'$`).FindAllStringSubmatch(string(tour), -1) {
		if !strings.Contains(seen, m[1]) {
			t.Errorf("Expected the recording to show %q", m[1])
		}
	}
}

// The README is read on pages that load its pictures.
func TestPicturesAreSmall(t *testing.T) {
	most := map[string]int64{"blocked.svg": 20_000, "tour.cast": 100_000, "tour.svg": 200_000}
	pictures, err := fs.ReadDir(repository, "docs/pictures")
	if err != nil || len(pictures) < len(most) {
		t.Fatalf("Expected pictures, got %v: %v", pictures, err)
	}
	for _, p := range pictures {
		bound, ok := most[p.Name()]
		if !ok {
			bound = 150_000
		}
		if info, err := p.Info(); err != nil || info.Size() > bound {
			t.Errorf("%s: Expected at most %d bytes, got %v: %v", p.Name(), bound, info.Size(), err)
		}
	}
}
