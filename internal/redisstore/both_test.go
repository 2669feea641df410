package redisstore

import (
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/redistest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/storetest"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Processes with a folder each share over Redis what processes with one folder share.
func TestStoresOnOneRedis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		server, machines := redistest.Start(t), t.TempDir()
		var late atomic.Bool
		return storetest.Medium{
			Process: func(machine int) *updater.Store {
				dir := filepath.Join(machines, strconv.Itoa(machine))
				store := openFolder(t, dir)
				r := open(t, server.URL(), func(c *Config) { c.Folder, c.Lease = dir, DefaultLease })
				store.Share(&noting{r.Store, &late})
				return store
			},
			Late:   late.Load,
			Lose:   func() { server.Do("FLUSHALL") },
			Damage: func(document string) { server.Do("SET", key(document), "\xff garbage") },
			DamageList: func() {
				until(t, "a list in Redis", func() bool { return server.Do("EXISTS", key("heads:schedule.json")) == ":1" })
				for name := range strings.FieldsSeq(server.Do("KEYS", key("part:*"))) {
					if strings.Contains(name, "part:") {
						server.Do("SETRANGE", name, "100", "damaged")
					}
				}
			},
		}
	})
}

// noting notes errors of Update.
type noting struct {
	updater.Shared
	late *atomic.Bool
}

// Update implements updater.Shared.
func (n *noting) Update(document string, change func([]byte) ([]byte, error)) error {
	err := n.Shared.Update(document, change)
	if err != nil {
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
