package relay

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A wait for a budget, a share or a key of a relay ends when the relay has a larger or another one:
// each CoreDNS behind it asks again within a minute, about names that were refused and about others.
func TestWhatARelayRaisesOrReplacesEndsTheWaitsOfItsClients(t *testing.T) {
	for name, before := range map[string]struct {
		budget, share int
		key           string // that the server refuses
	}{
		"the budget": {4, 100, ""}, "the share": {100, 1, ""}, "the key": {1000, 100, "OLD"},
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
				w.cfg.Key = before.key
				w.start()
				defer func() { w.relay.Close() }()
				synctest.Wait()
				c := w.replica(1)
				defer c.close()
				synctest.Wait()
				if before.key != "" {
					w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
				}
				refused := -1
				for i := range 59 {
					if d := c.decideFor("192.0.2.1", fmt.Sprintf("evil%d.example.", i)); d.Verdict == lookup.Unsure {
						refused = i
						break
					}
				}
				if refused < 0 || refused == 0 && before.key == "" {
					t.Fatalf("name %d was refused", refused)
				}
				w.relay.Close()
				w.cfg.Settings.Budget, w.cfg.Settings.Share = 1000, 100
				if before.key != "" {
					w.cfg.Key = "NEW"
				}
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
