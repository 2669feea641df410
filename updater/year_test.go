package updater_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var (
	yearSeeds = flag.Int("year.seeds", 8, "how many years TestAYearWithoutViolation simulates of each version of the protocol")
	yearSeed  = flag.Uint64("year.seed", 0, "simulate only the year of this seed; 0: all")
)

// spoken is what a year depends on the version of the protocol for.
type spoken struct {
	lists  []string
	widths func(list string, chance *rand.Rand) int // of an entry
	faults func() map[string]protocoltest.Fault
	client func(cfg protocol.Config, database *lookup.Database) (protocol.Client, error)
	search updater.SearchRules
	prefix func(entry []byte) lookup.Prefix // that is searched for
	single bool                             // one prefix a search
}

var versions = map[string]spoken{
	"v5": {
		lists:  []string{"se-4b", "mw-4b", "own-32b"},
		widths: func(list string, _ *rand.Rand) int { width, _ := updater.Width(list); return width },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaults()
			maps.Copy(all, protocoltest.SearchFaults())
			return all
		},
		client: func(cfg protocol.Config, _ *lookup.Database) (protocol.Client, error) { return protocol.NewV5(cfg) },
		search: protocol.DialectV5.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry[:4]) },
	},
	"v4": {
		lists:  []string{"se-4b", "mw-4b", "pha-4b"},
		widths: func(_ string, chance *rand.Rand) int { return 4 + max(0, chance.IntN(60)-31) },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaultsV4()
			maps.Copy(all, protocoltest.SearchFaultsV4())
			return all
		},
		client: func(cfg protocol.Config, database *lookup.Database) (protocol.Client, error) {
			return protocol.NewV4(cfg, []string{"se-4b", "mw-4b", "pha-4b"}, database.Versions)
		},
		search: protocol.DialectV4.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry) },
	},
	"webrisk": {
		lists:  []string{"se-4b", "mw-4b", "se-ext-4b"},
		widths: func(_ string, chance *rand.Rand) int { return 4 + max(0, chance.IntN(60)-31) },
		faults: func() map[string]protocoltest.Fault {
			all := protocoltest.ListFaultsWebRisk()
			maps.Copy(all, protocoltest.SearchFaultsWebRisk())
			maps.Copy(all, protocoltest.OddSearchTimes())
			for name, fault := range protocoltest.OddDiffTimes() {
				if !fault.FarNextDiff { // longer than the year
					all[name] = fault
				}
			}
			return all
		},
		client: func(cfg protocol.Config, _ *lookup.Database) (protocol.Client, error) {
			return protocol.NewWebRisk(cfg, []string{"se-4b", "mw-4b", "se-ext-4b"})
		},
		search: protocol.DialectWebRisk.SearchRules,
		prefix: func(entry []byte) lookup.Prefix { return lookup.Prefix(entry) },
		single: true,
	},
}

// TestAYearWithoutViolation lets an updater live through a year of simulated
// time for each seed: new versions, faults of every kind, minimum waits of all
// lengths and none, servers that refuse batches or lists, restarts, reloads, crashes
// in the middle of whatever goes on, suspends, and clocks that are set back. Meanwhile full hashes are searched for. The server is the
// referee. At the end, when the server is well again, the updater must have caught
// up.
func TestAYearWithoutViolation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for version, speaks := range versions {
		for seed := uint64(1); seed <= uint64(*yearSeeds); seed++ {
			if *yearSeed != 0 && seed != *yearSeed {
				continue
			}
			t.Run(fmt.Sprint(version, "/", seed), func(t *testing.T) {
				t.Parallel()
				dir := memoryDir(t)
				synctest.Test(t, func(t *testing.T) { newYear(t, speaks, dir, seed).live() })
			})
		}
	}
}

// memoryDir returns a folder that is not on a disk, where there is one: a year
// syncs files some ten thousand times.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "safebrowsing")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

type year struct {
	spoken
	t      *testing.T
	chance *rand.Rand // of the script; not for the client's goroutines
	server *protocoltest.Server
	dir    string // holds one folder for each crash
	folder int    // of the current process
	end    time.Time

	folders   int          // how many there are, but the first one
	other     int          // the folder of the relay that does not run
	shared    *commonStore // of relays; nil: a single process
	takeovers int

	content map[string]map[string]bool // what the server published, by list
	current *life
}

func newYear(t *testing.T, speaks spoken, dir string, seed uint64) *year {
	y := &year{
		spoken:  speaks,
		t:       t,
		chance:  rand.New(rand.NewPCG(seed, 1)),
		server:  protocoltest.New(t),
		dir:     dir,
		end:     time.Now().AddDate(1, 0, 0),
		content: make(map[string]map[string]bool),
	}
	y.server.JudgeSearchBackoff(true)
	for _, list := range y.lists {
		y.content[list] = make(map[string]bool)
		y.publish(list)
		y.setWait(list)
	}
	return y
}

// live is the script.
func (y *year) live() {
	y.start()
	for time.Now().Before(y.end) {
		time.Sleep(time.Duration(y.chance.Int64N(int64(72 * time.Hour))))
		switch y.chance.IntN(14) {
		case 0, 1, 2, 3:
			y.publish(y.list())
		case 4:
			y.setWait(y.list())
			y.setMethodWaits()
		case 5, 6, 7:
			y.breakSomething()
		case 8:
			y.restart(time.Duration(y.chance.Int64N(int64(time.Hour))))
		case 9:
			if y.shared != nil {
				y.takeOver()
				break
			}
			y.reload()
		case 10:
			y.crash()
		case 11:
			y.crashLoop()
		case 12:
			y.refuse()
		case 13:
			y.setClockBack()
		}
	}
	y.server.Repair()
	for _, list := range y.lists {
		y.server.SetMinimumWait(list, time.Hour)
	}
	y.server.SetFetchWait(0)
	y.server.SetFindWait(0)
	searched := y.searches()
	time.Sleep(longestWait + 20*time.Hour) // which may be running, and a suspend
	time.Sleep(48 * time.Hour)             // a back-off of all lists, and one of a single list
	y.check()
	if y.searches() == searched {
		y.t.Error("no search was answered since the server has been well")
	}
	y.current.stop()
}

// searches counts the searches that were sent.
func (y *year) searches() int {
	return len(y.server.Requests("search")) + len(y.server.Requests("find")) + len(y.server.Requests("searchOne"))
}

func (y *year) list() string { return y.lists[y.chance.IntN(len(y.lists))] }

// publish makes a next version: some entries go, some come.
func (y *year) publish(list string) {
	held := y.content[list]
	for _, e := range sorted(held) {
		if y.chance.IntN(4) == 0 {
			delete(held, e)
		}
	}
	for range y.chance.IntN(8) {
		entry := make([]byte, y.widths(list, y.chance))
		for i := range entry {
			entry[i] = byte(y.chance.Uint32())
		}
		held[string(entry)] = true
	}
	var entries [][]byte
	for e := range held {
		entries = append(entries, []byte(e))
	}
	y.server.Publish(list, entries)
}

func sorted(set map[string]bool) (all []string) {
	for e := range set {
		all = append(all, e)
	}
	slices.Sort(all)
	return all
}

// longestWait is the longest minimum wait that the server gives: more than a day,
// where back-offs end.
const longestWait = 8 * 24 * time.Hour

func (y *year) setWait(list string) {
	if y.chance.IntN(20) == 0 {
		y.server.SetMinimumWait(list, 0)
		return
	}
	shortest, longest := 30*time.Minute, 40*time.Hour
	if y.chance.IntN(10) == 0 {
		longest = longestWait
	}
	y.server.SetMinimumWait(list, shortest+time.Duration(y.chance.Int64N(int64(longest-shortest))))
}

// setMethodWaits sets the waits that version 4 has for each of its methods.
func (y *year) setMethodWaits() {
	y.server.SetFindWait(time.Duration(y.chance.Int64N(int64(3*time.Hour))) * time.Duration(y.chance.IntN(2)))
	y.server.SetFetchWait(time.Duration(y.chance.Int64N(int64(20*time.Hour))) * time.Duration(y.chance.IntN(2)))
	y.server.OmitUnchanged(y.chance.IntN(2) == 0)
	y.server.SetRawRemovals(y.chance.IntN(2) == 0)
}

// breakSomething queues a fault for one to thirty requests.
func (y *year) breakSomething() {
	faults := y.faults()
	var names []string
	for name, fault := range faults {
		if !fault.EndlessBody { // takes a hundred times as long as all others; it has its own test
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fault := faults[names[y.chance.IntN(len(names))]]
	if y.chance.IntN(2) == 0 {
		fault.List = y.list()
	}
	if y.chance.IntN(5) == 0 {
		fault.Delay = time.Duration(y.chance.Int64N(int64(4 * time.Minute)))
	}
	if fault.Status != 0 && y.chance.IntN(5) == 0 { // which counts for a day at most
		fault.RetryAfter = 10 * 365 * 24 * time.Hour
	}
	y.server.Break("", 1+int(y.chance.ExpFloat64()*3), fault)
}

// refuse makes the server refuse batches, a list, or all lists, for some time.
func (y *year) refuse() {
	fault := protocoltest.Fault{Status: http.StatusBadRequest}
	if y.chance.IntN(2) == 0 {
		fault.Status = http.StatusNotFound
	}
	switch y.chance.IntN(3) {
	case 0:
		fault.Batch = true
	case 1:
		fault.List = y.list()
	}
	y.server.Break("update", 1+y.chance.IntN(30), fault)
}

// restart stops the client as a service manager does, and starts it after a
// while.
func (y *year) restart(pause time.Duration) {
	y.current.stop()
	time.Sleep(pause)
	y.server.ClientStarted()
	y.start()
}

// reload starts a second client in the same folder, before the first is
// stopped: as a Corefile does whose engine settings changed.
func (y *year) reload() {
	old := y.current
	old.stopSearching()
	y.server.ClientStarted()
	y.start()
	time.Sleep(time.Duration(y.chance.Int64N(int64(5 * time.Second))))
	old.stop()
	y.server.ClientStarted()
}

// crash ends the client at once, whatever it does: nothing that it does
// afterwards reaches the disk or the server.
func (y *year) crash() {
	y.folders++
	y.folder = y.folders
	copyFolder(y.t, y.current.dir, y.folderDir(y.folder))
	y.current.dead.Store(true)
	if y.current.view != nil {
		y.current.view.cut()
	}
	y.current.stop()
	y.server.ClientStarted()
	y.start()
}

// crashLoop is a client that dies again and again soon after its start.
func (y *year) crashLoop() {
	for range y.chance.IntN(20) {
		time.Sleep(time.Duration(y.chance.Int64N(int64(3 * time.Minute))))
		y.crash()
	}
}

// setClockBack restarts the client while the wall clock of the machine is set back: it
// finds files from the future. Then the whole wait begins again. A clock that is set
// forward while no client runs is the same as time that passes.
func (y *year) setClockBack() {
	y.current.stop()
	if err := updater.SetClockBack(y.current.dir, time.Duration(y.chance.Int64N(int64(1000*time.Hour)))); err != nil {
		y.t.Fatal(err)
	}
	y.server.ClientStarted()
	y.start()
}

func (y *year) folderDir(n int) string { return filepath.Join(y.dir, fmt.Sprint(n)) }

func copyFolder(t *testing.T, from, to string) {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// check compares what is in force with what the server has.
func (y *year) check() {
	published := y.current.database.Lists()
	if len(published) != len(y.lists) {
		y.t.Fatalf("%d lists are in force, want %d", len(published), len(y.lists))
	}
	for i, list := range y.lists {
		got, err := io.ReadAll(published[i].Set.Reader())
		if err != nil {
			y.t.Fatal(err)
		}
		var want bytes.Buffer
		for _, e := range sorted(y.content[list]) {
			want.WriteString(e)
		}
		if !bytes.Equal(got, want.Bytes()) {
			y.t.Errorf("list %s has not caught up with the server: %d bytes, want %d", list, len(got), want.Len())
		}
	}
}

// life is one run of a client process.
type life struct {
	dir      string
	database *lookup.Database
	schedule *updater.Schedule
	dead     atomic.Bool     // crashed: no request leaves it any more
	view     *commonView     // of a relay; nil: a single process
	ctx      context.Context // ends with cancel
	cancel   context.CancelFunc
	client   protocol.Client
	wg       sync.WaitGroup

	contact time.Time // of the first search, at the earliest

	stopSearching func()
}

func (l *life) stop() {
	l.stopSearching()
	l.cancel()
	l.wg.Wait()
	l.schedule.Flush()
}

// search asks for prefixes that are in the lists, now and then, until ctx ends.
func (l *life) search(ctx context.Context, speaks spoken, searcher lookup.Searcher, chance *rand.Rand) {
	pause := time.Duration(chance.Int64N(int64(2 * time.Minute))) // the first one comes soon after the start
	for ; updater.Sleep(ctx, pause) == nil; pause = 6*time.Minute + time.Duration(chance.Int64N(int64(10*time.Hour))) {
		var prefixes []lookup.Prefix
		for _, list := range l.database.Lists() {
			if list.Set.Len() == 0 || chance.IntN(2) == 0 {
				continue
			}
			entries, width := list.Set.Runs().Next()
			prefix := speaks.prefix(entries[:width])
			if !slices.Contains(prefixes, prefix) {
				prefixes = append(prefixes, prefix)
			}
		}
		if len(prefixes) == 0 {
			continue
		}
		if speaks.single {
			prefixes = prefixes[:1]
		}
		searchCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		searcher.Search(searchCtx, prefixes)
		cancel()
	}
}

var errDead = errors.New("this process has crashed")

// RoundTrip implements http.RoundTripper.
func (l *life) roundTripper(t *testing.T, server *protocoltest.Server) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if l.dead.Load() {
			return nil, errDead
		}
		if r.URL.Path == "/v4/fullHashes:find" && time.Now().Before(l.contact) {
			t.Errorf("the first search is sent %s before the first contact", time.Until(l.contact))
		}
		return server.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// locked makes a source of numbers safe for concurrent use.
func locked(random func() float64) func() float64 {
	var mu sync.Mutex
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random()
	}
}

func (y *year) start() {
	y.startProcess()
	y.beginSearching()
}

// startProcess starts a process that searches for nothing yet.
func (y *year) startProcess() {
	l := &life{dir: y.folderDir(y.folder), database: new(lookup.Database), stopSearching: func() {}}
	store, err := updater.OpenStore(l.dir, updater.Origin{Name: "test"})
	if err != nil {
		y.t.Fatal(err)
	}
	if y.shared != nil {
		l.view = &commonView{commonStore: y.shared}
		store.Share(l.view)
	}
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		y.t.Fatal(err)
	}
	l.schedule = schedule
	chance := rand.New(rand.NewPCG(y.chance.Uint64(), 2)) // of this client's one goroutine
	schedule.SetRandom(locked(rand.New(rand.NewPCG(y.chance.Uint64(), 4)).Float64))
	client, err := y.client(protocol.Config{Key: "key", UserAgent: "year/1", Transport: l.roundTripper(y.t, y.server)}, l.database)
	if err != nil {
		y.t.Fatal(err)
	}
	u, err := updater.New(updater.Config{
		Source: client, Database: l.database, Schedule: schedule, Store: store, Lists: y.lists, Report: l.report(y.t),
		FirstContact: func() time.Duration { return time.Duration(chance.Float64() * float64(time.Minute)) },
	})
	if err != nil {
		y.t.Fatal(err)
	}
	u.SetSleep(func(ctx context.Context, d time.Duration) error {
		if chance.IntN(300) == 0 { // the machine is suspended
			d += time.Duration(chance.Int64N(int64(20 * time.Hour)))
		}
		return updater.Sleep(ctx, d)
	}, time.Hour)
	u.Load()
	ctx, cancel := context.WithCancel(y.t.Context())
	l.cancel = cancel
	l.wg.Go(func() { u.Run(ctx) })
	l.ctx, l.client = ctx, client
	y.current = l
}

// beginSearching has the current process search now and then.
func (y *year) beginSearching() {
	l := y.current
	searching, stop := context.WithCancel(l.ctx)
	l.stopSearching = stop
	asking := rand.New(rand.NewPCG(y.chance.Uint64(), 3))
	rules := y.search
	rules.FirstContact = func() time.Duration {
		delay := time.Duration(asking.Float64() * float64(time.Minute))
		l.contact = time.Now().Add(delay)
		return delay
	}
	searcher := updater.Pace(l.client, l.schedule, rules, l.report(y.t))
	l.wg.Go(func() { l.search(searching, y.spoken, searcher, asking) })
}

// report fails the test for trouble with the disk: there is none in this world.
func (l *life) report(t *testing.T) func(updater.Event) {
	return func(e updater.Event) {
		if e.Kind == updater.StoreFailed || e.Kind == updater.LoadFailed {
			t.Errorf("event %d of list %q: %v", e.Kind, e.List, e.Err)
		}
	}
}
