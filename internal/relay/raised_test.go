package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A wait for a budget or a share of a relay ends when the relay has a larger one: each CoreDNS
// behind it asks again within a minute, about names that were refused and about others.
func TestARaisedBudgetOfARelayEndsTheWaitsOfItsClients(t *testing.T) {
	for name, before := range map[string]struct{ budget, share int }{
		"the budget": {4, 100}, "the share": {100, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Settings.DB = t.TempDir()
				var names []string
				for i := range 60 {
					names = append(names, fmt.Sprintf("evil%d.example/", i))
				}
				w.threaten(names...)
				w.cfg.Settings.Budget, w.cfg.Settings.Share = before.budget, before.share
				w.start()
				defer func() { w.relay.Close() }()
				synctest.Wait()
				c := w.replica(1)
				defer c.close()
				synctest.Wait()
				refused := -1
				for i := range 59 {
					if d := c.decideFor("192.0.2.1", fmt.Sprintf("evil%d.example.", i)); d.Verdict == lookup.Unsure {
						refused = i
						break
					}
				}
				if refused < 1 {
					t.Fatalf("name %d was refused, want a later one", refused)
				}
				w.relay.Close()
				w.cfg.Settings.Budget, w.cfg.Settings.Share = 1000, 100
				w.start()
				c.wire.connect(w.relay, 0)
				synctest.Wait()
				time.Sleep(time.Minute)
				for _, i := range []int{refused, refused + 1} {
					if d := c.decideFor("192.0.2.1", fmt.Sprintf("evil%d.example.", i)); d.Verdict != lookup.Unsafe {
						t.Errorf("a minute after it was raised, name %d (the first refused is %d): %+v", i, refused, d)
					}
				}
			})
		})
	}
}
