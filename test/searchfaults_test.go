package test

import (
	"maps"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// Web Risk answers with moments, not with durations. One that is absent or past takes no
// protection away, and costs searches only: see TestFaultMatrix too.
func TestOddTimesOfSearchesTakeNoProtectionAway(t *testing.T) {
	for name, tc := range map[string]struct {
		searches int // for a threat and for a name that is none, three queries each
	}{
		"no expire time":                   {3 + 1},
		"expire time in the past":          {3 + 1},
		"no negative expire time":          {1 + 3},
		"negative expire time in the past": {1 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			fault, ok := protocoltest.OddSearchTimes()[name]
			if !ok || len(protocoltest.OddSearchTimes()) != 4 {
				t.Fatalf("Expected the four of %q", slices.Sorted(maps.Keys(protocoltest.OddSearchTimes())))
			}
			w := newWorld(t)
			w.protocol = protocol.DialectWebRisk
			w.threaten("evil.example.com/")
			w.publish("se-4b", "evil.example.com/", "harmless.example.com/")
			w.google.Break("search", 1000, fault)
			w.start(w.corefile())
			w.updated(w.perUpdate(3))
			for range 3 {
				w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
				w.wantPassed("harmless.example.com.", dns.TypeA)
			}
			if n := len(w.searches()); n != tc.searches {
				t.Errorf("Expected %d searches, got %d", tc.searches, n)
			}
		})
	}
}
