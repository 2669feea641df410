package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlagsWinOverQuick(t *testing.T) {
	o, err := parse([]string{"-quick", "-rounds", "7"})
	equal(t, err, [2]int{o.rounds, o.entries}, [2]int{7, 1_000_000})
	o, err = parse(nil)
	equal(t, err, o.limit <= 5*time.Minute, true)
	for args, want := range map[string][]string{ // router wants root for a cgroup, so it must be asked for
		"":                  {"pause", "clean"},
		"-quick -rounds 7":  {"clean"},
		"-only pause,scale": {"pause"},
		"-only memory":      {},
		"-only router":      {"router"},
	} {
		o, err := parse(strings.Fields(args))
		equal(t, "error", err, nil)
		equal(t, args, slices.DeleteFunc([]string{"pause", "clean", "router"}, func(name string) bool { return !o.wants(name) }), want)
	}
	for _, bad := range [][]string{{"-only", "speed"}, {"-rounds", "0"}, {"x"}, {"-entries", "17000000"}} {
		_, err := parse(bad)
		equal(t, bad, err != nil, true)
	}
}

// A command of the documents that this program refuses would be of no use.
func TestCommandsOfTheDocumentsAreAccepted(t *testing.T) {
	tried := 0
	for _, pattern := range []string{"*.md", "../*.md", "../docs/*.md", "../Makefile"} {
		paths, err := filepath.Glob(pattern)
		equal(t, pattern+": there are documents", err == nil && len(paths) > 0, true)
		for _, name := range paths {
			text, err := os.ReadFile(name)
			equal(t, name, err, nil)
			for _, m := range regexp.MustCompile(`go -C bench run \.([^#\x60\n]*)`).FindAllSubmatch(text, -1) {
				tried++
				_, err := parse(strings.Fields(string(m[1])))
				equal(t, name+": "+string(m[0]), err, nil)
			}
			// the bench is a module of its own: go -C bench
			equal(t, name+": a command that cannot work", string(regexp.MustCompile(`go [a-z]+ \./bench\b`).Find(text)), "")
		}
	}
	equal(t, fmt.Sprintf("at least 9 of %d commands were found", tried), tried >= 9, true)
}

// equal fails the test unless a value is the one that is wanted.
func equal[T any](t *testing.T, what any, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}

func TestMedianIsTheMiddleOfAllRounds(t *testing.T) {
	equal(t, "one", sample{3}.median(), 3)
	equal(t, "three", sample{9, 1, 2}.median(), 2)
	equal(t, "four", sample{4, 1, 2, 100}.median(), 3)
	equal(t, "none has no median", math.IsNaN(sample{}.median()), true)
}

func TestRatiosPairRounds(t *testing.T) {
	equal(t, "ratios", sample{2, 6, 5}.ratios(sample{1, 2}), sample{2, 3})
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	values := make([]time.Duration, 100)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		equal(t, p, percentile(values, p), want)
	}
	equal(t, "none", percentile(nil, 0.99), 0)
}

func TestTurnsAlternate(t *testing.T) {
	equal(t, "turns", slices.Concat(order(0, 2), order(1, 2)), []int{0, 1, 1, 0})
}
