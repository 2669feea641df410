package sharing

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/storetest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Processes with a folder each share over Redis what processes with one folder share.
func TestStoresOnOneRedis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, onRedis(func(int) time.Duration { return 0 }))
}

// The clocks of machines that follow each other differ by two hours, and each from that of Redis by
// one: a process that believed its own clock would wait for too long, or ask too early.
func TestWaitsHoldWhateverTheClocksShow(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]time.Duration{"the first one is fast": time.Hour, "the first one is slow": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, onRedis(func(machine int) time.Duration { return first * time.Duration(machine%2*2-1) }), storetest.Waits...)
		})
	}
}

// onRedis returns what opens a Redis for machines whose clocks are wrong by skew.
func onRedis(skew func(machine int) time.Duration) func(t *testing.T) storetest.Medium {
	return func(t *testing.T) storetest.Medium {
		server, machines := testkit.StartRedis(t), t.TempDir()
		var late atomic.Bool
		return storetest.Medium{
			Process: func(machine int) *updater.Store {
				dir := filepath.Join(machines, strconv.Itoa(machine))
				store := openFolder(t, dir)
				r := openStore(t, server.URL(), func(c *StoreConfig) {
					c.Folder, c.Lease = dir, DefaultLease
					c.wall = func() time.Time { return time.Now().Add(skew(machine)) }
				})
				store.Share(&noting{r.Store, &late})
				return store
			},
			Late:   late.Load,
			Lose:   func() { server.Do("FLUSHALL") },
			Damage: func(document string) { server.Do("SET", key(document), "\xff garbage") },
			DamageList: func() {
				testkit.Until(t, "a list in Redis", func() bool { return server.Do("EXISTS", key("heads:schedule.json")) == ":1" })
				for name := range strings.FieldsSeq(server.Do("KEYS", key("part:*"))) {
					if strings.Contains(name, "part:") {
						server.Do("SETRANGE", name, "100", "damaged")
					}
				}
			},
		}
	}
}

// noting notes errors of Swap.
type noting struct {
	updater.Shared
	late *atomic.Bool
}

// Swap implements updater.Medium.
func (n *noting) Swap(document string, old, next []byte) error {
	err := n.Shared.Swap(document, old, next)
	if err != nil && !errors.Is(err, updater.ErrConflict) {
		n.late.Store(true)
	}
	return err
}

func openFolder(t *testing.T, dir string) *updater.Store {
	t.Helper()
	store, err := updater.OpenStore(dir, origin)
	if err != nil {
		t.Fatal(err)
	}
	return store
}
