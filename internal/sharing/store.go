package sharing

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Several relays act as one over Redis: one of them at a time fetches
// lists, and all have its clocks, counts and lists. Store implements updater.Shared.
//
//	updater ──TryLock, Head, Read──▶ mirror in memory ◀──beat, every few seconds── Redis
//	        ──Own, Update, Publish────────────────────────────────────────────────▶ Redis
//
// The right to fetch is a lease: a key with the name of its holder, which expires. Each lease has
// a token, which grows. Scripts compare both before they write, so that Redis itself refuses a
// holder that was suspended and has woken up. The holder counts its lease from before each
// renewal was sent, by its monotonic clock, and stops before the key can expire.
//
// Redis is never needed. While it is away, the holder continues until its lease ends, and the
// others serve what they have. See alone.go for a Redis that stays away.

// Defaults of StoreConfig, and other times.
const (
	DefaultLease  = 30 * time.Second // beatScript ends one that would last twice as long: no version may have that
	DefaultBeat   = 5 * time.Second
	DefaultSettle = 15 * time.Second
	DefaultSpread = 10 * time.Second
	DefaultAlone  = 2 * time.Hour

	// callTimeout bounds one call of Redis.
	callTimeout = time.Second
	// firstBeat is how long the first TryLock waits for Redis.
	firstBeat = 3 * time.Second
)

// Prefix is the beginning of all keys of an asker, see updater.Origin. Its hash tag keeps the
// keys in one slot of a cluster, as scripts need.
func Prefix(asker string) string { return "safebrowsing:1:{" + asker + "}:" }

// StoreConfig says what a Store shares, and how. Zero times are the defaults.
type StoreConfig struct {
	Client *Client
	Origin updater.Origin
	Folder string      // of this relay, where it notes that it had the lease last
	Writer string      // version of this program, for relays of other versions
	Report func(Event) // called from several goroutines at once; must return at once

	Lease  time.Duration // until a holder that has died is replaced
	Beat   time.Duration // mean time between two looks at Redis
	Settle time.Duration // from the begin of a lease to its first request, so that others can report their clocks
	Spread time.Duration // followers fetch new lists within this time, each at a random moment
	Alone  time.Duration // from the loss of Redis until the last holder continues without it

	wall      func() time.Time     // of this machine; nil: time.Now. Tests replace it
	sinceBoot func() time.Duration // nil: updater.SinceBoot. Tests replace it to simulate a suspend
	timeout   time.Duration        // of one call of Redis; zero: callTimeout. A test on a busy machine needs more
}

// Store shares over Redis. Make one with OpenStore. It is safe for concurrent use.
type Store struct {
	cfg    StoreConfig
	id     string // of this process
	cancel context.CancelFunc
	wg     sync.WaitGroup // one beats, one listens
	kicks  chan struct{}  // has one element when the next beat must come at once
	first  chan struct{}  // closed when the first beat has ended

	unwritten atomic.Bool // the note could not be written

	mu        sync.Mutex // guards the rest; never held during a call of Redis
	asker     string
	want      bool
	token     string    // of the lease; "": none
	until     time.Time // end of the lease, on the monotonic clock
	since     time.Time // begin of the lease
	timer     *time.Timer
	lose      context.CancelFunc // ends the context of Held; nil: there is none
	mirror    mirror
	down      error     // why Redis cannot be used; nil: it can
	downAt    time.Time // since when; zero: it can
	alone     bool
	clock     clock  // of Redis
	holder    string // of the lease, as last seen
	note      note
	renewed   time.Time          // when the parts were renewed last
	repaired  time.Time          // when a lease was ended to publish again
	heads     map[string]string  // published in this lease, by name of the list
	published time.Time          // when the last of them was
	broken    map[string]string  // heads whose parts are missing, likewise
	kept      map[string]bool    // lists that this process keeps: it has asked for their heads
	deafen    context.CancelFunc // ends the subscription to news; nil: there is none yet
}

// OpenStore returns a Store that looks at Redis until Close. It does not wait for Redis.
func OpenStore(cfg StoreConfig) *Store {
	cfg.Lease, cfg.Beat = cmp.Or(cfg.Lease, DefaultLease), cmp.Or(cfg.Beat, DefaultBeat)
	cfg.Settle, cfg.Spread = cmp.Or(cfg.Settle, DefaultSettle), cmp.Or(cfg.Spread, DefaultSpread)
	cfg.Alone, cfg.timeout = cmp.Or(cfg.Alone, DefaultAlone), cmp.Or(cfg.timeout, callTimeout)
	if cfg.Report == nil {
		cfg.Report = func(Event) {}
	}
	if cfg.wall == nil {
		cfg.wall = time.Now
	}
	if cfg.sinceBoot == nil {
		cfg.sinceBoot = updater.SinceBoot
	}
	host, _ := os.Hostname()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{cfg: cfg, id: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8]), cancel: cancel,
		kicks: make(chan struct{}, 1), first: make(chan struct{}), asker: cfg.Origin.Asker, heads: make(map[string]string), broken: make(map[string]string), kept: make(map[string]bool)}
	s.mirror.heads = make(map[string]seenHead)
	files.Clean(cfg.Folder, func(name string) bool { return name == noteFile }) // of processes that died
	s.note = readNote(cfg.Folder, s.asker).during(time.Now(), cfg.Alone)
	s.timer = time.AfterFunc(time.Hour, s.checkLease)
	s.wg.Go(func() { s.run(ctx) })
	s.wg.Go(func() { s.listen(ctx) })
	return s
}

// Close returns the lease and ends the Store. It waits for Redis for at most a second, and not
// for a write that hangs, see files.Wait.
func (s *Store) Close() {
	s.Unlock()
	s.cancel()
	files.Wait(s.wg.Wait)
	s.timer.Stop()
	s.mu.Lock()
	token, keys := s.token, s.keys()
	s.token = ""
	s.mu.Unlock()
	if token != "" {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.timeout)
		defer cancel()
		_, _ = s.cfg.Client.Eval(ctx, "release", dropIf, []string{keys.lease}, s.id) // it expires
	}
}

// TryLock implements updater.Shared.
func (s *Store) TryLock() bool {
	s.mu.Lock()
	began := !s.want
	s.want = true
	s.mu.Unlock()
	if began {
		s.kick()
	}
	timeout := time.NewTimer(firstBeat)
	defer timeout.Stop()
	select {
	case <-s.first:
	case <-timeout.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds(time.Now())
}

// Unlock implements updater.Shared.
func (s *Store) Unlock() {
	s.mu.Lock()
	s.want = false
	s.endTurn()
	s.mu.Unlock()
	s.kick()
}

// holds reports whether this process may fetch at now. The caller holds mu.
func (s *Store) holds(now time.Time) bool {
	return s.alone || s.token != "" && now.Before(s.until)
}

// Held implements updater.Shared.
func (s *Store) Held(ctx context.Context) (context.Context, context.CancelFunc, time.Time) {
	held, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(time.Now()) {
		cancel()
		return held, cancel, time.Time{}
	}
	s.lose = cancel
	return held, cancel, s.since.Add(s.cfg.Settle)
}

// endTurn ends the context of Held. The caller holds mu.
func (s *Store) endTurn() {
	if s.lose != nil {
		s.lose()
		s.lose = nil
	}
}

// checkLease ends a lease that was not renewed in time.
func (s *Store) checkLease() {
	s.mu.Lock()
	if s.token == "" || s.alone {
		s.mu.Unlock()
		return
	}
	if rest := time.Until(s.until); rest > 0 {
		s.timer.Reset(rest)
		s.mu.Unlock()
		return
	}
	events := s.dropLease("")
	s.mu.Unlock()
	s.report(events)
}

// dropLease notes that the lease has ended, or what this process did alone, and who has the lease
// now; "": unknown. The caller holds mu.
func (s *Store) dropLease(holder string) (events []Event) {
	if s.token != "" || s.alone {
		events = []Event{{Kind: LeaseLost, Holder: holder}}
	}
	s.token, s.alone = "", false
	clear(s.heads)
	s.endTurn()
	return events
}

// Now implements updater.Shared: it is Redis's clock, and this machine's until Redis
// has told the time.
func (s *Store) Now() (latest time.Time, within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.told() {
		now := s.clock.now(s.cfg.sinceBoot())
		return now.latest, now.latest.Sub(now.earliest)
	}
	return s.cfg.wall().Round(0), 0
}

// Rekey implements updater.Shared. The lease of the old asker expires.
func (s *Store) Rekey(asker string) {
	s.mu.Lock()
	s.asker = asker
	events := s.dropLease("")
	s.mirror = mirror{heads: make(map[string]seenHead)}
	if s.deafen != nil {
		s.deafen() // the news are on another channel now
	}
	s.mu.Unlock()
	s.report(events)
	s.kick()
}

// kick makes the next beat come at once.
func (s *Store) kick() {
	select {
	case s.kicks <- struct{}{}:
	default:
	}
}

func (s *Store) report(events []Event) {
	for _, e := range events {
		s.cfg.Report(e)
	}
}

// errAway says that a call was not made, because the last one failed.
var errAway = errors.New("redis cannot be used")

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of events. Each is reported once when a state begins.
const (
	Lost       EventKind = iota // Redis cannot be used: Err, Cure
	Back                        // Redis can be used again, or for the first time
	Newer                       // relays of a newer version use these keys: Holder is that version
	LeaseTaken                  // this process has the right to fetch
	LeaseLost                   // this process no longer has the right to fetch; Holder has it, "" if that is unknown
	Follows                     // another process has the right to fetch: Holder
	Alone                       // this process continues without Redis, which is away since Since
	Repaired                    // lists in Redis were missing or damaged and are published again
)

// Event is something for a log line or a metric. Fields that its Kind does not mention are zero.
type Event struct {
	Kind   EventKind
	Err    error
	Holder string
	Since  time.Time
}

// Cure returns what an operator can do about an error of Redis.
func Cure(err error) string {
	text := err.Error()
	for _, c := range cures {
		if strings.Contains(text, c.word) {
			return c.cure
		}
	}
	return "Check that Redis runs and can be reached"
}

// cures are what helps against errors with a word. The first one counts.
var cures = []struct{ word, cure string }{
	{"does not speak as Redis does", "Check the address of Redis, and who can change what it sends: rediss:// protects it on its way"},
	{"does not speak RESP3", "Upgrade Redis"},
	{"NOAUTH", "Give the password of Redis"},
	{"WRONGPASS", "Correct the password of Redis"},
	{"NOPERM", "Give the user of Redis the rights for these keys"},
	{"verify certificate", "Give -redis-ca the authority of Redis's certificate, and -redis a name in it"},
	{"DB index is out of range", "Name a database that Redis has"},
	{"NOREPLICAS", "Bring back the replicas of Redis, or lower its min-replicas-to-write"},
	{"OOM", "Raise maxmemory of Redis"},
	{"READONLY", "Name the master of Redis, or its Sentinels"},
	{"LOADING", "Redis is reading its data; wait"},
	{"MISCONF", "Make room on the disk of Redis"},
	{"MOVED", "Name a cluster as redis+cluster://, and let each node announce its own address"},
	{"ASK ", "Let each node of the cluster announce its own address"},
}
