package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/google/pprof/profile"
)

// call is a place in a function where it calls another one. Lines are as the compiler counts
// them for a profile: from the first one of the function.
type call struct {
	caller string
	line   int64
	callee string
}

func compareCalls(a, b call) int {
	return cmp.Or(cmp.Compare(a.caller, b.caller), cmp.Compare(a.line, b.line), cmp.Compare(a.callee, b.callee))
}

// callsOf returns in how many samples each call was under way, inlined ones too. A call counts
// once for a stack that has it several times, as it does for the compiler (internal/profile of
// Go, NewGraph).
func callsOf(p *profile.Profile) map[call]int64 {
	counts := make(map[call]int64)
	for _, s := range p.Sample {
		seen := make(map[call]bool)
		var callee string
		for _, location := range s.Location { // from the leaf on
			for _, line := range location.Line {
				c := call{line.Function.Name, line.Line - line.Function.StartLine, callee}
				if callee != "" && !seen[c] {
					seen[c] = true
					counts[c] += s.Value[0]
				}
				callee = line.Function.Name
			}
		}
	}
	return counts
}

// sortedCalls returns the calls in an order that is the same each time.
func sortedCalls(counts map[call]int64) []call {
	return slices.SortedFunc(maps.Keys(counts), compareCalls)
}

// thinProfile is a CPU profile in the making, whose samples are single calls.
type thinProfile struct {
	p         *profile.Profile
	functions map[string]*profile.Function
	locations map[call]*profile.Location // by caller and line
}

func newThinProfile() *thinProfile {
	return &thinProfile{
		p:         &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}},
		functions: make(map[string]*profile.Function),
		locations: make(map[call]*profile.Location),
	}
}

func (t *thinProfile) add(c call, count int64) {
	t.p.Sample = append(t.p.Sample, &profile.Sample{
		Location: []*profile.Location{t.location(c.callee, 0), t.location(c.caller, c.line)},
		Value:    []int64{count},
	})
}

// location returns that of a line of a function. All functions begin at line 1: the compiler
// takes the difference, and refuses a profile in which all begin at line 0.
func (t *thinProfile) location(function string, line int64) *profile.Location {
	key := call{caller: function, line: line}
	if l := t.locations[key]; l != nil {
		return l
	}
	f := t.functions[function]
	if f == nil {
		f = &profile.Function{ID: uint64(len(t.functions) + 1), Name: function, StartLine: 1}
		t.functions[function] = f
		t.p.Function = append(t.p.Function, f)
	}
	l := &profile.Location{ID: uint64(len(t.locations) + 1), Line: []profile.Line{{Function: f, Line: 1 + line}}}
	t.locations[key] = l
	t.p.Location = append(t.p.Location, l)
	return l
}
