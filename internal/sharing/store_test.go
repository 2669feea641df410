package sharing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/storetest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// events collects what a Store reports.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) add(x Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

// list returns the events so far.
func (e *events) list() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// count returns how many events of a kind there are. An event comes after what it tells of.
func (e *events) count(kind EventKind) (n int) {
	for _, x := range e.list() {
		if x.Kind == kind {
			n++
		}
	}
	return n
}

// relay is a Store with what a test changes and sees.
type relay struct {
	*Store
	events *events
	folder string
}

var origin = storetest.Origin

// openStore opens a Store with short times on a Redis, whose answers may be late on a busy machine.
func openStore(t *testing.T, url string, change func(*StoreConfig)) *relay {
	t.Helper()
	target, err := Parse(url)
	testkit.Must(t, err)
	client, err := Open(Config{Target: target, Prefix: Prefix(origin.Asker), Deadline: time.Second})
	testkit.Must(t, err)
	t.Cleanup(client.Close)
	r := &relay{events: new(events), folder: t.TempDir()}
	cfg := StoreConfig{Client: client, Origin: origin, Folder: r.folder, Writer: "test", Report: r.events.add,
		Lease: 3 * time.Second, Beat: 50 * time.Millisecond, Settle: time.Millisecond, Spread: time.Millisecond, timeout: 20 * time.Second}
	if change != nil {
		change(&cfg)
	}
	r.folder = cfg.Folder
	r.Store = OpenStore(cfg)
	t.Cleanup(r.Close)
	return r
}

// lead waits until a relay has the lease.
func (r *relay) lead(t *testing.T) {
	t.Helper()
	testkit.Until(t, "the lease", r.TryLock)
}

// leader starts a Redis, and a relay on it that has the lease.
func leader(t *testing.T, change func(*StoreConfig)) (*testkit.Redis, *relay) {
	t.Helper()
	server := testkit.StartRedis(t)
	r := openStore(t, server.URL(), change)
	r.lead(t)
	return server, r
}

// turn returns the context of Held.
func (r *relay) turn(t *testing.T) context.Context {
	held, cancel, _ := r.Held(t.Context())
	t.Cleanup(cancel)
	return held
}

// mustNotLead wants that a relay does not get the lease for some beats.
func (r *relay) mustNotLead(t *testing.T) {
	t.Helper()
	for range 20 {
		if r.TryLock() {
			t.Fatalf("Expected no right to fetch, got %+v", r.events.list())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// renewSoon makes the next beat renew the parts.
func (r *relay) renewSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = time.Time{}
}

// seenFile returns the file of the list in Redis, as the relay saw it last.
func (r *relay) seenFile() blob {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mirror.heads["se-4b"].head.File
}

// publish publishes a version of a list, with changes since the one before.
func (r *relay) publish(version, content string, changes ...byte) error {
	h := updater.Head{List: "se-4b", Version: []byte(version), Checksum: []byte("sum " + version), Received: time.Now().Round(0)}
	return r.Publish(h, func(w io.Writer) error { _, err := io.WriteString(w, content); return err }, changes)
}

// put replaces a document, again if others write at the same time.
func put(m updater.Medium, document, text string) error {
	for {
		old, _ := m.Read(document)
		if err := m.Swap(document, old, []byte(text)); !errors.Is(err, updater.ErrConflict) {
			return err
		}
	}
}

func key(name string) string { return Prefix(origin.Asker) + name }

func TestOneRelayAtATimeHasTheLease(t *testing.T) {
	long(t)
	server, a := leader(t, nil)
	b, held := openStore(t, server.URL(), nil), a.turn(t)
	b.mustNotLead(t)
	a.Unlock()
	testkit.Equal(t, "the turn ends with the lease", held.Err() != nil, true)
	b.lead(t)
	testkit.Until(t, "one change of the lease", func() bool {
		return a.events.count(LeaseTaken) == 1 && b.events.count(LeaseTaken) == 1 && b.events.count(Follows) == 1
	})
	b.Close()
	a.lead(t) // at once: the lease was returned
}

// In a Cluster, and behind a Sentinel also after a failover to the replica, there is one holder, and what is published is found.
func TestTheStoreOnAClusterAndBehindASentinel(t *testing.T) {
	long(t)
	for name, start := range map[string]func(t *testing.T) (url string, failover func()){
		"cluster": func(t *testing.T) (string, func()) {
			nodes := testkit.StartCluster(t)
			return "redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr, func() {}
		},
		"sentinel": func(t *testing.T) (string, func()) {
			master := testkit.StartRedis(t)
			host, port, _ := strings.Cut(master.Addr, ":")
			replica := testkit.StartRedis(t, "--replicaof", host+" "+port)
			testkit.Until(t, "a replica", func() bool { return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") })
			sentinels := testkit.StartSentinels(t, master, 1)
			testkit.Until(t, "a Sentinel that knows the replica", func() bool {
				return strings.Contains(sentinels[0].Do("SENTINEL", "master", "main"), "num-slaves $1 1")
			})
			return "redis+sentinel://" + sentinels[0].Addr + "/main", func() {
				master.Kill()
				testkit.Until(t, "a new master", func() bool {
					role, err := replica.Try("ROLE")
					return err == nil && strings.Contains(role, "master")
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, failover := start(t)
			a, b := openStore(t, url, nil), openStore(t, url, nil)
			a.lead(t)
			publish := func(version string) { // by the one that has the lease, which a failover may pass on
				t.Helper()
				testkit.Until(t, "that version "+version+" is published", func() bool {
					return slices.ContainsFunc([]*relay{a, b}, func(r *relay) bool { return r.TryLock() && r.publish(version, "content "+version) == nil })
				})
			}
			found := func(by *relay, version string) {
				t.Helper()
				testkit.Until(t, "version "+version, func() bool {
					by.TryLock()
					h, ok := by.Head("se-4b")
					if !ok || string(h.Version) != version {
						return false
					}
					raw, err := by.File(h)
					return err == nil && string(raw) == "content "+version
				})
			}
			publish("1")
			found(b, "1")
			failover()
			testkit.Until(t, "one holder", func() bool { return a.TryLock() != b.TryLock() })
			publish("2")
			found(a, "2")
			found(b, "2")
		})
	}
}

// A holder that was suspended believes in its lease when it wakes up. Redis does not.
func TestRedisRefusesAHolderThatWasSuspended(t *testing.T) {
	long(t)
	server, a := leader(t, func(c *StoreConfig) { c.Beat, c.Lease = time.Hour, time.Hour }) // it does not look again by itself
	schedule := origin.Documents()[0]
	testkit.Must(t, put(a.Leased(), schedule, "first"))
	document := func() error { return put(a.Leased(), schedule, "late") }
	head := func() error { return a.publish("v", "x") }
	for _, test := range []struct {
		name  string
		lose  []string // a command
		write func() error
	}{
		{"the lease has expired", []string{"DEL", key("lease:" + schedule)}, document},
		{"another relay has it", []string{"SET", key("lease:" + schedule), "other"}, document},
		{"it had another one meanwhile", []string{"INCR", key("token:" + schedule)}, document},
		{"it had another one meanwhile, and publishes a head", []string{"INCR", key("token:" + schedule)}, head},
	} {
		// A beat may come between the loss and the write. The relay then has a new lease, and may write: the test tries again.
		testkit.Until(t, test.name+": that Redis refuses", func() bool {
			a.leadAgain(t, server, schedule)
			server.Do("SET", key(schedule), "first")
			server.Do("DEL", key("heads:"+schedule))
			server.Do(test.lose...)
			err := test.write()
			if err != nil {
				testkit.Is(t, test.name, err, errFenced)
				has := []string{server.Do("GET", key(schedule)), server.Do("EXISTS", key("heads:"+schedule))}
				testkit.Equal(t, test.name+": the document, and heads", has, []string{"$5 first", ":0"})
			}
			return err != nil
		})
		server.Do("DEL", key("lease:"+schedule))
	}
}

// A relay that has never seen its Redis work knows no other that could fetch. It ceases when there are relays of a newer version.
func TestARelayThatNeverSawRedisGoesOnAlone(t *testing.T) {
	long(t)
	server := testkit.StartRedis(t)
	server.Do("SET", key("format"), "2 v9.1.0")
	link := testkit.NewLink(t, server.Addr)
	link.Set(false, true)
	r := openStore(t, "redis://"+link.Addr, func(c *StoreConfig) { c.Alone = 100 * time.Millisecond })
	testkit.Until(t, "that it continues alone", r.TryLock)
	testkit.Until(t, "one event of each kind", func() bool { return r.events.count(Alone) == 1 && r.events.count(Lost) == 1 })
	link.Set(false, false)
	testkit.Until(t, "that it ceases", func() bool { return r.events.count(Newer) == 1 && !r.TryLock() })
	testkit.Until(t, "that it says so", func() bool { return r.events.count(LeaseLost) == 1 })
}

// leadAgain lets the relay take the lease again.
func (r *relay) leadAgain(t *testing.T, server *testkit.Redis, schedule string) {
	t.Helper()
	server.Do("DEL", key("lease:"+schedule))
	testkit.Until(t, "the lease again", func() bool { r.kick(); return r.TryLock() })
}

func TestAHolderStopsBeforeItsLeaseEnds(t *testing.T) {
	long(t)
	server, a := leader(t, func(c *StoreConfig) { c.timeout = 3 * time.Second })
	held := a.turn(t)
	server.Stop() // Redis hangs: keys stay
	defer server.Continue()
	begun := time.Now()
	ends(t, held)
	a.mu.Lock()
	lasted := a.until.Sub(begun)
	a.mu.Unlock()
	testkit.Between(t, "it believes in its lease for", lasted, 0, a.cfg.Lease-1)
	testkit.Equal(t, "it has the right to fetch", a.TryLock(), false)
	testkit.Is(t, "a document", put(a.Leased(), "schedule.json", "x"), errFenced)
	testkit.Until(t, "one event for Redis and one for the lease", func() bool { return a.events.count(Lost) == 1 && a.events.count(LeaseLost) == 1 })
}

// Whatever Redis has or says, the lease is not believed without it, there is one event for a state, and it heals.
func TestTroubleOfRedis(t *testing.T) {
	long(t)
	lease, do := key("lease:schedule.json"), func(words ...string) func(*testkit.Redis) { return func(s *testkit.Redis) { s.Do(words...) } }
	for name, test := range map[string]struct {
		begin, end func(s *testkit.Redis) // end nil: it heals by itself
		cure       string                 // of the event; "": no event is wanted, since it heals at once
	}{
		"killed":    {(*testkit.Redis).Kill, (*testkit.Redis).Restart, "Check that Redis runs"},
		"hangs":     {(*testkit.Redis).Stop, (*testkit.Redis).Continue, "Check that Redis runs"},
		"full":      {do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"), "Raise maxmemory"},
		"read-only": {do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE"), "Name the master"},
		"no rights": {do("ACL", "SETUSER", "default", "-eval", "-evalsha"), do("ACL", "SETUSER", "default", "+eval", "+evalsha"), "the rights"},
		"flushed":   {do("FLUSHALL"), nil, ""},
		"garbage": {func(s *testkit.Redis) {
			for _, name := range []string{"lease:schedule.json", "token:schedule.json", "format", "schedule.json", "heads:schedule.json"} {
				s.Do("DEL", key(name))
				s.Do("RPUSH", key(name), "garbage")
			}
		}, nil, ""},
		"garbage in strings": {do("MSET", key("token:schedule.json"), "\xff garbage", key("format"), "\xff garbage",
			key("schedule.json"), "\xff garbage"), nil, ""},
		"a token that cannot grow": {func(s *testkit.Redis) {
			s.Do("SET", key("token:schedule.json"), "1.5")
			s.Do("DEL", lease)
		}, nil, ""},
		"a dead relay's lease of before its clock was set back":        {do("SET", lease, "dead", "PX", "31536000000"), nil, ""},
		"a dead relay's lease that a copy of its Redis keeps for ever": {do("SET", lease, "dead"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, r := leader(t, func(c *StoreConfig) {
				if name == "hangs" {
					c.timeout = 3 * time.Second
				}
			})
			test.begin(server)
			if test.cure != "" {
				testkit.Until(t, "the loss of Redis", func() bool { return r.events.count(Lost) == 1 })
				testkit.Until(t, "the end of the lease", func() bool { return !r.TryLock() })
				testkit.WantError(t, put(r, "x", "y"))
				_, err := r.Read("x")
				testkit.WantError(t, err) // documents are not known
			}
			if test.end != nil {
				test.end(server)
			}
			testkit.Until(t, "an update to work", func() bool { return r.TryLock() && put(r.Leased(), "schedule.json", "healed") == nil })
			all := r.events.list()
			for _, e := range all {
				if e.Kind == Lost && (!strings.Contains(Cure(e.Err), test.cure) || test.cure == "") {
					t.Errorf("Expected the cure %q, got %q for %v", test.cure, Cure(e.Err), e.Err)
				}
			}
			testkit.Equal(t, fmt.Sprintf("losses in %v", all), r.events.count(Lost), min(1, len(test.cure)))
		})
	}
}

// A server that answers runs and can be reached.
func TestTheCureFitsTheError(t *testing.T) {
	long(t)
	private, _ := testkit.StartRedisTLS(t)
	server := testkit.StartRedis(t, "--databases", "1")
	poor := testkit.StartRedis(t, "--min-replicas-to-write", "1")
	for url, cure := range map[string]string{
		strings.Replace(private.URL(), "redis:", "rediss:", 1): "-redis-ca",
		server.URL() + "/1": "a database that Redis has",
		poor.URL():          "min-replicas-to-write",
	} {
		_, w := open(t, url, nil)
		testkit.WantParts(t, Cure(errors.New(w.wait(t, 1)[0])), cure)
	}
}

func TestARelayLeavesANewerFormatAlone(t *testing.T) {
	long(t)
	server := testkit.StartRedis(t)
	server.Do("SET", key("format"), "2 v9.1.0")
	r := openStore(t, server.URL(), func(c *StoreConfig) { c.Alone = time.Millisecond })
	testkit.Until(t, "the event", func() bool { return r.events.count(Newer) == 1 })
	r.mustNotLead(t)
	testkit.WantNone(t, server.Do("KEYS", key("*")), "lease", "alive")
	testkit.Equal(t, "the version that wrote it", r.events.list()[0].Holder, "2 v9.1.0")
	server.Do("DEL", key("format"))
	r.lead(t)
}

// Relays of a newer version fetch since. Who had the lease before does not continue alone when Redis goes away, however long ago.
func TestTheLastHolderBeforeANewerFormatDoesNotGoOnAlone(t *testing.T) {
	long(t)
	server, old := leader(t, func(c *StoreConfig) { c.Alone = 2 * time.Second })
	server.Do("SET", key("format"), "2 v9.1.0")
	testkit.Until(t, "the event", func() bool { return old.events.count(Newer) == 1 })
	time.Sleep(2 * time.Second)
	server.Kill()
	testkit.Until(t, "that Redis is away", func() bool { return old.events.count(Lost) == 1 })
	old.mustNotLead(t)
}

// When Redis stays away, the relay that had the lease last continues, and yields when Redis is back.
func TestTheLastHolderGoesOnAlone(t *testing.T) {
	long(t)
	soon := func(c *StoreConfig) { c.Alone = 4 * time.Second }
	server, a := leader(t, soon)
	b := openStore(t, server.URL(), soon)
	testkit.Until(t, "that b follows", func() bool { b.TryLock(); return b.events.count(Follows) == 1 })
	server.Kill()
	testkit.Until(t, "that a continues alone", func() bool { b.TryLock(); return a.TryLock() && a.events.count(Alone) == 1 })
	testkit.Is(t, "a document of a relay alone", put(a.Leased(), "schedule.json", "x"), updater.ErrAlone)
	held := a.turn(t)

	// A restart of the last holder does not make it wait from the beginning.
	again := openStore(t, server.URL(), func(c *StoreConfig) { c.Folder, c.Alone = a.folder, time.Hour })
	again.mu.Lock()
	n := again.note
	again.mu.Unlock()
	testkit.Equal(t, "the note: held last, never away", [2]bool{n.HeldLast, n.Away.IsZero()}, [2]bool{true, false})
	time.Sleep(time.Second)
	testkit.Equal(t, "b has the right, or continues alone", []any{b.TryLock(), b.events.count(Alone)}, []any{false, 0})
	server.Restart()
	ends(t, held)
	testkit.Until(t, "one holder again", func() bool { return a.TryLock() != b.TryLock() })
}

func TestContentsAreCheckedAndInParts(t *testing.T) {
	long(t)
	server, a := leader(t, nil)
	b := openStore(t, server.URL(), nil)
	content, change := strings.Repeat("0123456789abcde\n", 3*partBytes/32), []byte("change")
	testkit.Must(t, a.publish("1", content, change...))
	testkit.Until(t, "the head at b", func() bool { b.TryLock(); _, ok := b.Head("se-4b"); return ok })
	got, _ := b.Head("se-4b")
	raw, err := b.File(got)
	if err != nil || string(raw) != content {
		t.Fatalf("Expected the content, got %d bytes, %v", len(raw), err)
	}
	raw, err = b.Change(got)
	testkit.Equal(t, "the change", []any{string(raw), err}, []any{"change", nil})
	parts := b.seenFile().key(Prefix(origin.Asker), 0)
	testkit.Equal(t, "bytes of a part", server.Do("STRLEN", parts), fmt.Sprintf(":%d", partBytes))
	// Who finds damage makes the holder publish again.
	for want, damage := range map[string][]string{
		"checksum": {"SETRANGE", parts, "100", "damaged"}, "part 1 of 2 is missing": {"DEL", parts},
	} {
		held := a.turn(t)
		server.Do(damage...)
		_, err := b.File(got)
		testkit.WantError(t, err, want)
		ends(t, held)
		_, ok := a.Head("se-4b")
		testkit.Equal(t, "the damaged head is used", ok, false)
		testkit.Must(t, a.publish("1", content, change...))
		testkit.Until(t, "the content at b", func() bool { raw, err := b.File(got); return err == nil && string(raw) == content })
	}
	// The holder finds a missing part by itself.
	held := a.turn(t)
	server.Do("DEL", parts)
	a.renewSoon()
	ends(t, held)
	_, ok := a.Head("se-4b")
	testkit.Equal(t, "the damaged head is used", ok, false)
}

// Lists that rest are not lost: the descriptions of lists live as long as their parts are renewed. Parts of old contents expire.
func TestListsThatRestDoNotExpireAndOldContentsDo(t *testing.T) {
	t.Parallel()
	server, a := leader(t, nil)
	part := func() string { return a.seenFile().key(Prefix(origin.Asker), 0) }
	testkit.Must(t, a.publish("1", "old"))
	server.Do("EXPIRE", key("heads:schedule.json"), "1000")
	a.renewSoon()
	testkit.Until(t, "a longer life", func() bool { return life(server, key("heads:schedule.json")) > 1000*time.Second })
	old := part()
	testkit.Must(t, a.publish("2", "new"))
	testkit.Until(t, "a short life of the old part", func() bool { l := life(server, old); return l > 0 && l <= keepOld })
	testkit.Between(t, "the new part lives for", life(server, part()), keepParts-10*time.Minute, keepParts)
}

// A content that is replaced while it is being renewed still expires soon.
func TestAContentThatIsReplacedWhileItIsRenewedExpires(t *testing.T) {
	t.Parallel()
	server, a := leader(t, nil)
	testkit.Must(t, a.publish("1", "old"))
	a.mu.Lock()
	k, seen, old := a.keys(), a.mirror.heads["se-4b"], a.mirror.heads["se-4b"].head.File
	a.mu.Unlock()
	testkit.Must(t, a.publish("2", "new"))
	a.renew(t.Context(), k, "se-4b", seen)
	testkit.Between(t, "the old part lives for", life(server, old.key(k.prefix, 0)), 1, keepOld)
}

// life returns how long a key lives.
func life(server *testkit.Redis, key string) time.Duration {
	var ms time.Duration
	fmt.Sscanf(server.Do("PTTL", key), ":%d", &ms)
	return ms * time.Millisecond
}

// ends waits until a process may no longer fetch.
func ends(t *testing.T, held context.Context) {
	t.Helper()
	testkit.Until(t, "the end of the turn", func() bool { return held.Err() != nil })
}

// A look at Redis whose answer is from before a head was published takes nothing back: the holder would publish its lists again.
func TestALookFromBeforeAHeadWasPublishedTakesNothingBack(t *testing.T) {
	t.Parallel()
	_, a := leader(t, nil)
	testkit.Must(t, a.publish("1", "1"))
	a.mu.Lock()
	k := a.keys()
	a.mu.Unlock()
	begun := time.Now()
	v, err := a.look(t.Context(), k, true)
	testkit.Must(t, err)
	testkit.Must(t, a.publish("2", "2"))
	a.mu.Lock()
	defer a.mu.Unlock()
	events, _ := a.saw(v.Array(), k, true, begun)
	got := []any{string(a.mirror.heads["se-4b"].head.Version), a.damaged(), len(events)}
	testkit.Equal(t, "the version, damaged, events", got, []any{"2", false, 0})
	events, _ = a.saw(v.Array(), k, true, time.Now())
	testkit.Equal(t, "a head that Redis has lost is noticed", a.damaged() || len(events) > 0, true)
}

func TestNoteOfTheLastLease(t *testing.T) {
	t.Parallel()
	const text = `{"held_last":true,"seen":true,"asker":"a"}`
	waits := note{Seen: true, Asker: "a"} // for Redis: another relay may have had the lease last
	for name, test := range map[string]struct {
		put  func(path string) error
		want note
	}{
		"none":              {func(string) error { return nil }, note{}},
		"a note":            {putText(text), note{HeldLast: true, Seen: true, Asker: "a"}},
		"cut":               {putText(text[:len(text)/2]), waits},
		"empty":             {putText(""), waits},
		"zeros":             {putText(strings.Repeat("\x00", len(text))), waits},
		"a folder":          {func(path string) error { return os.Mkdir(path, 0o700) }, waits},
		"a link to itself":  {func(path string) error { return os.Symlink(path, path) }, waits},
		"a link to nothing": {func(path string) error { return os.Symlink(path+".none", path) }, waits},
		"too large":         {putText(text + strings.Repeat(" ", maxNote)), waits},
	} {
		dir := t.TempDir()
		testkit.Must(t, test.put(filepath.Join(dir, noteFile)))
		testkit.Equal(t, name, readNote(dir, "a"), test.want)
	}
}

// A relay that was off for days, or whose clock has jumped, knows nothing of Redis in that time: it waits as if Redis had just gone.
func TestANoteOfLongAgoDoesNotShortenTheWait(t *testing.T) {
	long(t)
	const restart = -time.Minute // when Redis was last seen to be away
	for name, seen := range map[string]time.Duration{"a restart": restart, "off for days": -72 * time.Hour, "a clock set back": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			n := note{HeldLast: true, Seen: true, Asker: origin.Asker, Away: time.Now().Add(-73 * time.Hour), Until: time.Now().Add(seen)}
			testkit.Must(t, n.write(dir))
			r := openStore(t, "redis://"+testkit.FreeAddr(t), func(c *StoreConfig) { c.Folder, c.Alone = dir, time.Hour })
			r.TryLock()
			testkit.Until(t, "some looks at Redis", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return !r.downAt.IsZero() && time.Since(r.downAt) > 500*time.Millisecond
			})
			testkit.Equal(t, "it works alone", r.TryLock(), seen == restart)
			testkit.Until(t, "a note of the last minutes", func() bool { return time.Since(readNote(dir, origin.Asker).Until).Abs() < 10*time.Minute })
		})
	}
}

func putText(text string) func(path string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
}

func TestNoteIsWrittenWhenTheFolderCanBe(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "not", "yet")
	leader(t, func(c *StoreConfig) { c.Folder = folder })
	testkit.Must(t, os.MkdirAll(folder, 0o700))
	testkit.Until(t, "a note of the lease", func() bool { return readNote(folder, origin.Asker).HeldLast })
}

func TestRekeyUsesOtherKeys(t *testing.T) {
	t.Parallel()
	server, a := leader(t, nil)
	testkit.Must(t, put(a.Leased(), "schedule.json", "old"))
	held := a.turn(t)
	a.Rekey("other")
	testkit.Equal(t, "the turn of the old key ends", held.Err() != nil, true)
	testkit.Until(t, "the lease of the new key", func() bool { return a.TryLock() && put(a.Leased(), "schedule.json", "new") == nil })
	testkit.Equal(t, "the document of the new key", server.Do("GET", Prefix("other")+"schedule.json"), "$3 new")
	testkit.Equal(t, "the document of the old key", server.Do("GET", key("schedule.json")), "$3 old")
}
