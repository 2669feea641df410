package test

import (
	"maps"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// Each fault of the answer to a search: the name passes, the log has one line, and names
// that were confirmed before stay blocked.
func TestNoFaultOfASearchTakesProtectionOrDNSAway(t *testing.T) {
	lines := logtest.Capture(t)
	for d, faults := range map[*protocol.Dialect]map[string]protocoltest.Fault{
		protocol.DialectV5:      protocoltest.SearchFaults(),
		protocol.DialectV4:      protocoltest.SearchFaultsV4(),
		protocol.DialectWebRisk: protocoltest.SearchFaultsWebRisk(),
	} {
		for name, fault := range bearable(t, faults, 12) {
			t.Run(d.String()+"/"+name, func(t *testing.T) {
				lines.Forget()
				w := newWorld(t)
				w.protocol = d
				w.threaten("known.example.com/", "evil.example.com/", "worse.example.com/")
				w.start(w.corefile())
				w.updated(w.perUpdate(3))
				w.wantBlocked("known.example.com.", dns.TypeA, w.blames("social engineering"))
				w.google.Break("", 1000, fault)
				w.wantPassed("evil.example.com.", dns.TypeA)
				w.wantBlocked("known.example.com.", dns.TypeA, w.blames("social engineering"))
				w.eventually("the log line", func() bool { return len(lines.About("Suspected names pass until")) == 1 })
				if d == protocol.DialectV5 {
					return // its back-off begins with the third failure, or with status 403 or 429
				}
				w.wantPassed("worse.example.com.", dns.TypeA)
				if n := len(w.searches()); n != 2 {
					t.Errorf("Expected no search during the back-off, got %d", n-2)
				}
			})
		}
	}
}

// See TestOddTimesOfListsTakeNoProtectionAway.
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
