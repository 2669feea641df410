package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlagsWinOverQuick(t *testing.T) {
	o, err := parse([]string{"-quick", "-rounds", "7"})
	if err != nil || o.rounds != 7 || o.entries != 1_000_000 || o.wants("pause") || !o.wants("clean") {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parse([]string{"-quick", "-only", "pause,scale"})
	if err != nil || !o.wants("pause") || o.wants("clean") {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parse(nil)
	if err != nil || !o.wants("pause") || o.limit > 5*time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{nil, {"-quick"}, {"-only", "memory"}} {
		if o, err = parse(args); err != nil || o.wants("router") {
			t.Errorf("%q: it wants root for a cgroup, which was not asked for: %v", args, err)
		}
	}
	if o, err = parse([]string{"-only", "router"}); err != nil || !o.wants("router") || o.wants("clean") {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-only", "speed"}, {"-rounds", "0"}, {"x"}, {"-entries", "17000000"}} {
		if _, err := parse(bad); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
}

// A command of the documents that this program refuses would be of no use.
func TestCommandsOfTheDocumentsAreAccepted(t *testing.T) {
	tried := 0
	for _, pattern := range []string{"*.md", "../*.md", "../docs/*.md", "../Makefile"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no documents at %s: %v", pattern, err)
		}
		for _, name := range paths {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`go -C bench run \.([^#\x60\n]*)`).FindAllSubmatch(text, -1) {
				tried++
				if _, err := parse(strings.Fields(string(m[1]))); err != nil {
					t.Errorf("%s: %s: %v", name, m[0], err)
				}
			}
			if old := regexp.MustCompile(`go [a-z]+ \./bench\b`).Find(text); old != nil {
				t.Errorf("%s: %s: the bench is a module of its own: go -C bench", name, old)
			}
		}
	}
	if tried < 9 {
		t.Errorf("found %d commands of the bench in the documents, want at least 9", tried)
	}
}

func TestMedianIsTheMiddleOfAllRounds(t *testing.T) {
	tests := []struct {
		values sample
		want   float64
	}{
		{sample{3}, 3},
		{sample{9, 1, 2}, 2},
		{sample{4, 1, 2, 100}, 3},
	}
	for _, tt := range tests {
		if got := tt.values.median(); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.values, got, tt.want)
		}
	}
	if got := (sample{}).median(); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v", got)
	}
}

func TestRatiosPairRounds(t *testing.T) {
	got := sample{2, 6, 5}.ratios(sample{1, 2})
	if want := (sample{2, 3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %v: %d, want %d", p, got, want)
		}
	}
	if got := percentile(nil, 0.99); got != 0 {
		t.Errorf("percentile of nothing: %s", got)
	}
}

func TestTurnsAlternate(t *testing.T) {
	if got := slices.Concat(order(0, 2), order(1, 2)); !slices.Equal(got, []int{0, 1, 1, 0}) {
		t.Errorf("got %v", got)
	}
}
