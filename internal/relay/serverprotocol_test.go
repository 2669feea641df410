package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
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
