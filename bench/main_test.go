package main

import (
	"slices"
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
	for _, bad := range [][]string{{"-only", "speed"}, {"-rounds", "0"}, {"x"}, {"-entries", "17000000"}} {
		if _, err := parse(bad); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
}

func TestAllowedCoresAreRead(t *testing.T) {
	tests := map[string][]int{
		"Name:\tx\nCpus_allowed_list:\t0-2,5\n": {0, 1, 2, 5},
		"Cpus_allowed_list:\t3\n":               {3},
		"Cpus_allowed_list:\tall\n":             nil,
		"":                                      nil,
	}
	for status, want := range tests {
		if got := allowedCores(status); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
}

func TestCountsAreReadable(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10_000_000: "10,000,000"} {
		if got := count(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
