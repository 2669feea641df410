package updater_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A router without a clock starts with the time of its newest file, and some are restarted each day.
func TestAWaitOfADayEndsOnARouterThatIsRestartedDaily(t *testing.T) {
	const up, behind, day = 20 * time.Hour, 5 * 24 * time.Hour, 24 * time.Hour
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("mw-4b", entriesOf(1))
		server.Break("", 2, protocoltest.Fault{Status: http.StatusTooManyRequests, RetryAfter: day})
		for boot := range 3 {
			client, err := protocol.NewV5(protocol.Config{Key: "key", UserAgent: "run/1", Transport: server})
			must(t, err)
			store := openStore(t, dir, updater.Origin{Name: "test"})
			began := time.Now()
			store.SetBoot(func() (string, time.Duration) { return fmt.Sprint("boot", boot), time.Since(began) })
			r := newRunOf(t, client, store, "mw-4b").started()
			if boot == 0 {
				if _, err := updater.Pace(client, r.schedule, updater.SearchRules{Backoff: updater.Strikes}, r.report).Search(t.Context(), []lookup.Prefix{"\x01\x01\x01\x01"}); err == nil {
					t.Fatal("the search did not fail")
				}
			}
			time.Sleep(up)
			synctest.Wait() // a request of this very moment ends before the shutdown
			if left := time.Until(r.schedule.SearchHold().Until); boot == 0 && left != day-up {
				t.Errorf("searches wait for %s after %s", left, up)
			} else if boot > 0 && left > 0 {
				t.Errorf("boot %d: searches still wait for %s", boot, left)
			}
			r.stop()
			r.schedule.Flush()
			must(t, updater.SetClock(dir, -behind))
		}
		if n := len(server.Requests("update")); n < 2 {
			t.Errorf("%d requests for lists", n)
		}
	})
}
