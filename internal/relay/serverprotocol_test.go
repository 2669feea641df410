package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Whatever protocol the server speaks, clients speak version 5 and get the same verdicts.
func TestTheRelayAsksByAnyProtocol(t *testing.T) {
	for _, d := range protocol.Dialects() {
		t.Run(d.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.threaten("evil.example/")
				long := lookup.HashExpression("long.example/")
				evil := lookup.HashExpression("evil.example/")
				if d != protocol.DialectV5 { // lists with longer entries
					w.google.Publish("se-4b", [][]byte{evil[:4], long[:6]})
					w.google.AddThreat("long.example/", 2)
				}
				w.cfg.Settings.Protocol = d.Name
				w.start()
				defer w.relay.Close()
				time.Sleep(2 * time.Minute)
				c := w.replica(1)
				defer c.close()
				synctest.Wait()
				if d := c.decide("evil.example."); d.Verdict != lookup.Unsafe {
					t.Errorf("got %+v", d)
				}
				if d != protocol.DialectV5 {
					if d := c.decide("long.example."); d.Verdict != lookup.Unsafe {
						t.Errorf("a longer entry: %+v", d)
					}
				}
				if d := c.decide("good.example."); d.Verdict != lookup.Safe {
					t.Errorf("got %+v", d)
				}
			})
		})
	}
}

// The SHA-256 of these two agree in four bytes and differ in the fifth.
const lengthened, popular = "h92304.com", "h107960.com"

// Web Risk lengthens an entry that would match a popular URL. Behind one relay and behind two, that
// URL causes no search, as it does not for a client of Web Risk itself. Another client of the relay
// causes one search, and both block the name that is listed.
func TestARelayCausesNoSearchThatADirectClientDoesNot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		relays int
		old    bool
		want   int
	}{
		{"direct", 0, false, 0},
		{"behind a relay", 1, false, 0},
		{"behind two relays", 2, false, 0},
		{"behind a relay, a client that knows no longer entries", 1, true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				listed, other := lookup.HashExpression(lengthened+"/"), lookup.HashExpression("other.example/")
				w.google.Publish("se-4b", [][]byte{listed[:5], other[:4]})
				w.google.AddThreat(lengthened+"/", sbv5.ThreatType_SOCIAL_ENGINEERING)
				w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
				var c *replica
				switch tc.relays {
				case 0:
					c = w.direct()
				case 1:
					w.start()
					defer w.relay.Close()
				case 2:
					w.start()
					defer w.relay.Close()
					time.Sleep(2 * time.Minute)
					second := w.behind()
					defer second.relay.Close()
					w = second.world
				}
				time.Sleep(2 * time.Minute)
				if c == nil {
					c = w.replica(1)
					c.wire.old.Store(tc.old)
				}
				defer c.close()
				time.Sleep(2 * time.Minute)
				for range 2 {
					before := len(w.google.Requests("search"))
					if d := c.decide(popular + "."); d.Verdict != lookup.Safe {
						t.Errorf("%s: %+v", popular, d)
					}
					if got := len(w.google.Requests("search")) - before; got != tc.want {
						t.Errorf("%s: %d searches, want %d", popular, got, tc.want)
					}
					if d := c.decide(lengthened + "."); d.Verdict != lookup.Unsafe {
						t.Errorf("%s: %+v", lengthened, d)
					}
					w.google.Publish("se-4b", [][]byte{listed[:6]}) // a partial update
					time.Sleep(2 * time.Hour)
				}
			})
		})
	}
}
