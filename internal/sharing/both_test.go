package sharing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// Clocks of machines that follow each other differ by two hours: who believed the own one would wait for too long, or ask too early.
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
	testkit.Between(t, "bytes for the first content, or the test measures nothing", full, (relays-1)*size, math.MaxInt)
	testkit.Between(t, "bytes for a change of 0.1 %", change, 0, full/4)
}

// A list that no relay keeps any more has no publisher: its head goes, and no turn ends for it.
func TestAHeadWithoutPartsOfAListThatNobodyKeepsEndsNoTurn(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	raw, err := json.Marshal(head{Head: updater.Head{List: "gone-4b", Version: []byte("1"), Checksum: []byte("x")}, Format: format, Writer: "test", Token: "1",
		File: blob{SHA256: strings.Repeat("ab", 32), Bytes: 10}})
	testkit.Must(t, err)
	server.Do("HSET", key("heads:schedule.json"), "gone-4b", string(raw))
	r := openStore(t, server.URL(), func(c *StoreConfig) { c.Lease = time.Minute })
	r.Head("se-4b") // it keeps another one
	r.lead(t)
	held := r.turn(t)
	r.renewSoon()
	r.kick()
	testkit.Until(t, "that the head is removed", func() bool { return server.Do("HEXISTS", key("heads:schedule.json"), "gone-4b") == ":0" })
	for range 3 { // each would find the list missing
		r.another(t)
	}
	testkit.Equal(t, fmt.Sprint("the turn's end, repairs of ", r.events.list()), []any{held.Err(), r.events.count(Repaired)}, []any{nil, 0})
}

// another waits for another beat that begins after the call: the next one to end may have begun before.
func (r *relay) another(t *testing.T) {
	t.Helper()
	beats := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.mirror.beats }
	seen := beats()
	testkit.Until(t, "another beat", func() bool { r.kick(); return beats() > seen+1 })
}

// Who may write keys can name other lists at each beat. A relay remembers those that it keeps.
func TestHeadsThatComeAndGoTakeNoMemory(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	r := openStore(t, server.URL(), nil)
	r.Head("se-4b")
	for i := range 3 {
		server.Do("HSET", key("heads:schedule.json"), "se-4b", "{}", fmt.Sprintf("a%d-4b", i), "{}", fmt.Sprintf("b%d-4b", i), "{}")
		r.another(t)
		server.Do("DEL", key("heads:schedule.json"))
		r.another(t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	testkit.Equal(t, "missing lists, damaged", []any{len(r.mirror.missing), r.damaged()}, []any{1, true})
}

// A fleet that goes back to an older version works again some leases after the newer one has ended.
func TestTheFormatExpiresWithItsWriters(t *testing.T) {
	long(t)
	server, r := leader(t, func(c *StoreConfig) { c.Lease = time.Second })
	testkit.Between(t, "the format lives for", life(server, key("format")), 1, keepFormat*time.Second)
	server.Do("SET", key("format"), fmt.Sprint(format+1, " 99.0"))
	testkit.Until(t, "that the newer format is seen", func() bool { return r.events.count(Newer) == 1 })
	server.Do("PEXPIRE", key("format"), "300")
	testkit.Until(t, "that Redis is used again", func() bool { return r.events.count(Back) == 2 })
	r.lead(t)
}

// SCAN returns some keys twice while Redis resizes its table.
func TestAKeyThatIsFoundTwiceIsOneList(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	server.Do("HSET", key("heads:schedule.json"), "se-4b", `{"list":"se-4b","format":1}`)
	c, fleets := openRedis(t, server.URL()), make(map[string]*Fleet)
	for range 2 {
		testkit.Must(t, see(t.Context(), c, fleets, key("heads:schedule.json")))
	}
	testkit.Equal(t, "lists", len(fleets[origin.Asker].Lists), 1)
}

// After a new key the news of others arrive at once, not with the next beat.
func TestNewsAreHeardAfterANewKey(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	a := openStore(t, server.URL(), nil)
	b := openStore(t, server.URL(), func(c *StoreConfig) { c.Beat, c.Lease = time.Hour, 3*time.Hour })
	b.seen(t)
	a.Rekey("another key")
	b.Rekey("another key")
	b.seen(t)
	document, n := origin.Documents()[1], 0
	testkit.Until(t, "a document that another relay has written", func() bool {
		n++
		_ = put(a, document, fmt.Sprint(n)) // it may be away for a moment
		time.Sleep(20 * time.Millisecond)
		raw, _ := b.Read(document)
		return len(raw) > 0
	})
}

func TestValuesThatAreTooLargeAreRemoved(t *testing.T) {
	long(t)
	server := testkit.StartRedis(t)
	large := strings.Repeat("x", 2<<20)
	document := origin.Documents()[0]
	names := []string{"format", document, "lease:schedule.json", "token:schedule.json"}
	for _, name := range names {
		server.Do("SET", key(name), large)
	}
	server.Do("HSET", key("heads:schedule.json"), "se-4b", large)
	r := openStore(t, server.URL(), nil)
	r.lead(t)
	server.Do("SET", key(document), large) // between two beats
	testkit.Must(t, put(r.Leased(), document, "mine"))
	testkit.Equal(t, "the document of the relay", server.Do("GETRANGE", key(document), "0", "40"), "$4 mine")
	testkit.Equal(t, "heads", server.Do("HLEN", key("heads:schedule.json")), ":0")
	testkit.Equal(t, fmt.Sprintf("losses of Redis in %v", r.events.list()), r.events.count(Lost), 0)
}

// seen waits for the first beat of a relay.
func (r *relay) seen(t *testing.T) {
	t.Helper()
	testkit.Until(t, "a beat", func() bool {
		_, err := r.Read(origin.Documents()[0])
		return err == nil
	})
}

// A suspend between two beats counts: the monotonic clock may stand still during it. The wall clock may show anything.
func TestTheClockOfRedisGoesOnDuringASuspendWhateverTheWallClockShows(t *testing.T) {
	t.Parallel()
	server := testkit.StartRedis(t)
	var suspended atomic.Int64
	r := openStore(t, server.URL(), func(c *StoreConfig) {
		c.Beat, c.Lease = time.Minute, 3*time.Minute
		begun := time.Now()
		c.sinceBoot = func() time.Duration { return time.Minute + time.Since(begun) + time.Duration(suspended.Load()) }
		c.wall = func() time.Time { return time.Unix(0, 0) }
	})
	r.seen(t)
	now := func() time.Time { latest, _ := r.Now(); return latest }
	testkit.Between(t, "the clock is ahead by", time.Until(now()), -time.Minute, time.Minute)
	suspended.Store(int64(time.Hour))
	testkit.Between(t, "the clock is ahead of one that stood still by", time.Until(now()), 59*time.Minute, 61*time.Minute)
}

// On a busy machine an answer is late, or its call was. What is written by the clock is then not too early
// and what is read not too late, also when somebody has set the clock of Redis, which the next call tells.
func TestTheClockOfRedisIsBetweenItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		delay := func() time.Duration {
			if r.IntN(4) > 0 {
				return time.Duration(r.IntN(int(time.Millisecond)))
			}
			return time.Duration(r.IntN(int(time.Second)))
		}
		for range 200 {
			var c clock
			var set time.Duration // by how much the clock of Redis is ahead
			best := time.Hour     // the shortest call since it was set
			redis := func() time.Time { return time.Now().Add(set).Round(0) }
			for call := range 20 {
				if r.IntN(10) == 0 {
					set, best = set+time.Duration(2+r.IntN(3600))*time.Duration(1-2*r.IntN(2))*time.Second, time.Hour
				}
				begun := time.Now()
				time.Sleep(delay())
				told := redis()
				time.Sleep(delay())
				c = c.next(told, begun, 0)
				best = min(best, time.Since(begun))
				time.Sleep(delay())
				now := c.now(0)
				if now.earliest.After(redis()) || now.latest.Before(redis()) || now.latest.Sub(now.earliest) > best {
					t.Fatalf("call %d, and the best took %s: the clock is from %s to %s after the one of Redis", call, best, now.earliest.Sub(redis()), now.latest.Sub(redis()))
				}
			}
		}
	})
}
