package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// stack returns a sample of count, from the leaf on. Each frame is a function that begins at
// line 10, the line in it, and whether it is inlined into the next one.
func stack(count int64, frames ...frame) *profile.Sample {
	s := &profile.Sample{Value: []int64{count, count * 10}, Label: map[string][]string{"secret": {"label"}}}
	var location *profile.Location
	for _, f := range frames {
		if location == nil {
			location = &profile.Location{Address: 4711, Mapping: &profile.Mapping{ID: 1, File: "/home/me/coredns"}}
			s.Location = append(s.Location, location)
		}
		function := &profile.Function{Name: f.name, SystemName: f.name, Filename: "/home/me/" + f.name + ".go", StartLine: 10}
		location.Line = append(location.Line, profile.Line{Function: function, Line: 10 + f.line})
		if !f.inlined {
			location = nil
		}
	}
	return s
}

type frame struct {
	name    string
	line    int64
	inlined bool
}

func TestCallsAreThoseTheCompilerReads(t *testing.T) {
	tests := []struct {
		name    string
		samples []*profile.Sample
		want    map[call]int64
	}{
		{"a leaf alone", []*profile.Sample{stack(3, frame{"a", 1, false})}, nil},
		{"two callers", []*profile.Sample{
			stack(3, frame{"a", 1, false}, frame{"b", 2, false}),
			stack(4, frame{"a", 7, false}, frame{"b", 2, false}, frame{"c", 3, false}),
		}, map[call]int64{{"b", 2, "a"}: 7, {"c", 3, "b"}: 4}},
		{"inlined", []*profile.Sample{stack(5, frame{"a", 1, true}, frame{"b", 2, false}, frame{"c", 3, false})},
			map[call]int64{{"b", 2, "a"}: 5, {"c", 3, "b"}: 5}},
		{"recursion counts once", []*profile.Sample{stack(6, frame{"a", 1, false}, frame{"a", 1, false}, frame{"a", 1, false})},
			map[call]int64{{"a", 1, "a"}: 6}},
		{"two lines of one caller", []*profile.Sample{
			stack(1, frame{"a", 0, false}, frame{"b", 2, false}), stack(1, frame{"a", 0, false}, frame{"b", 4, false}),
		}, map[call]int64{{"b", 2, "a"}: 1, {"b", 4, "a"}: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := callsOf(&profile.Profile{Sample: tt.samples}); !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A profile goes into the repository: it has the calls that are not rare, and no more.
func TestASlimProfileHasOnlyItsCalls(t *testing.T) {
	full := &profile.Profile{Sample: []*profile.Sample{
		stack(20000, frame{"a", 1, false}, frame{"b", 2, false}),
		stack(3, frame{"rare", 1, false}, frame{"b", 3, false}),
		stack(5000, frame{"a", 1, true}, frame{"c", 5, false}),
	}}
	slimmed, err := slim(full)
	if err != nil {
		t.Fatal(err)
	}
	file := new(bytes.Buffer)
	if err := slimmed.WriteUncompressed(file); err != nil {
		t.Fatal(err)
	}
	read, err := profile.ParseData(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := callsOf(read), (map[call]int64{{"b", 2, "a"}: 20000, {"c", 5, "a"}: 5000}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, never := range []string{"/home/me", "secret", "label", "rare"} {
		if strings.Contains(file.String(), never) {
			t.Errorf("the profile tells %q", never)
		}
	}
	for _, l := range read.Location {
		if l.Address != 0 || l.Mapping != nil {
			t.Errorf("the profile tells an address: %v", l)
		}
	}
}
