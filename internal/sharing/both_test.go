package sharing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// The clocks of machines that follow each other differ by two hours, and each from Redis's by
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
	testkit.Must(t, err)
	return store
}

var scaleEntries = flag.Int("entries", 1_000_000, "entries of the list of TestTrafficOfLists")

// scaled is a source whose contents differ in one entry of a thousand.
type scaled struct {
	mu      sync.Mutex
	entries int
	content int
}

func (s *scaled) Fetch(_ context.Context, wanted []updater.Want, take func(int, *updater.Update)) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content++
	raw := make([]byte, 0, 4*s.entries)
	step := (1<<32 - 1) / uint64(s.entries)
	for i := range uint64(s.entries) {
		value := i * step
		if i%1000 == 0 {
			value += uint64(s.content)
		}
		raw = binary.BigEndian.AppendUint32(raw, uint32(value))
	}
	sum := sha256.Sum256(raw)
	wait := 4 * time.Second
	if s.content > 1 { // a relay that misses a content fetches the next one whole
		wait = time.Hour
	}
	for i := range wanted {
		take(i, &updater.Update{Version: []byte{byte(s.content)}, Checksum: sum[:], MinimumWait: wait,
			Additions: []updater.Entries{{Width: 4, Count: s.entries, Reader: bytes.NewReader(raw)}}})
	}
	return 0, nil
}

// info returns a figure of INFO.
func info(t *testing.T, s *testkit.Redis, section, name string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(s.Do("INFO", section), name+":")
	_, err := fmt.Sscan(rest, &n)
	testkit.Must(t, err)
	return n
}

// A relay that has the content before fetches the difference only.
//
//	go test ./internal/sharing -run TestTrafficOfLists -entries 10000000 -v
func TestTrafficOfLists(t *testing.T) {
	long(t)
	const relays = 4
	server := testkit.StartRedis(t)
	s := &scaled{entries: *scaleEntries}
	var all []*storetest.Process
	have := func(content int) func() bool {
		return func() bool {
			return !slices.ContainsFunc(all, func(p *storetest.Process) bool {
				lists := p.Lists()
				return len(lists) == 0 || int(lists[0].Version[0]) < content
			})
		}
	}
	for range relays {
		r := openStore(t, server.URL(), nil)
		store := openFolder(t, r.folder)
		store.Share(r.Store)
		all = append(all, storetest.Start(t, store, s))
	}
	testkit.Until(t, "the first content at all relays", have(1))
	full := info(t, server, "stats", "total_net_output_bytes")
	testkit.Until(t, "the second content at all relays", have(2))
	change := info(t, server, "stats", "total_net_output_bytes") - full
	size := all[0].Lists()[0].Set.Bytes()
	t.Logf("%d relays, %d entries (%d bytes): Redis sent %d bytes for the first content, %d bytes for the second; peak of its memory %d bytes",
		relays, s.entries, size, full, change, info(t, server, "memory", "used_memory_peak"))
	if full < (relays-1)*size {
		t.Errorf("Expected at least %d bytes for the first content, got %d: the test measures nothing", (relays-1)*size, full)
	}
	if change > full/4 {
		t.Errorf("Expected a small part of %d bytes for a change of 0.1 %%, got %d", full, change)
	}
}
