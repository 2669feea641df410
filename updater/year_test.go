package updater_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var (
	yearSeeds  = flag.Int("year.seeds", 1, "how many years TestAYearWithoutViolation simulates of each version of the protocol")
	yearMonths = flag.Int("year.months", 2, "how many months of a year are simulated; 12: all")
	yearFirst  = flag.Uint64("year.first", 1, "the seed of the first year; the others follow")
)

// TestAYearWithoutViolation lets an updater live through a year of simulated time for each seed: new versions, faults of every
// kind, minimum waits of all lengths and none, servers that refuse batches or lists, restarts, reloads, crashes in the middle
// of anything, reboots, suspends, and clocks that are set back or forward while nothing runs. Meanwhile full hashes are
// searched for. The server is the referee. At the end, when the server is well again, the updater must have caught up.
func TestAYearWithoutViolation(t *testing.T) {
	liveYears(t, *yearSeeds, func(*year) {})
}

// liveYears simulates n years of each version. Garbage is collected less often then: a year makes much of it, and needs little memory.
func liveYears(t *testing.T, n int, prepare func(y *year)) {
	testkit.Long(t)
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for version, speaks := range versions {
		for seed := *yearFirst; seed < *yearFirst+uint64(n); seed++ {
			t.Run(fmt.Sprint(version, "/", seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					y := newYear(t, speaks, dir, seed)
					prepare(y)
					y.live()
				})
			})
		}
	}
}

type year struct {
	spoken
	t      *testing.T
	chance *rand.Rand // of the script; not for the client's goroutines
	server *protocoltest.Server
	dir    string // holds one folder for each crash
	folder int    // of the current process
	end    time.Time
	boots  int       // of the machine
	booted time.Time // last; both change only while no process runs

	folders   int                   // how many there are, but the first one
	other     int                   // the folder of the relay that does not run
	shared    *updater.MemoryShared // of relays; nil: a single process
	takeovers int
	starts    int // of processes
	published int // versions of lists
	losses    int // of the network

	away  atomic.Int64 // no network before, in nanoseconds since 1970
	noTLS atomic.Bool  // while it is away machines take connections, and TLS fails

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
		end:     time.Now().AddDate(0, *yearMonths, 0),
		booted:  time.Now(),
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
		time.Sleep(y.within(72 * time.Hour))
		switch y.chance.IntN(15) {
		case 0, 1, 2, 3:
			y.publish(y.list())
		case 4:
			y.setWait(y.list())
			y.setMethodWaits()
		case 5, 6, 7:
			y.breakSomething()
		case 8:
			y.restart(y.within(time.Hour))
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
			y.setClock()
		case 14:
			y.loseNetwork()
		}
	}
	y.server.Repair()
	y.away.Store(0)
	for _, list := range y.lists {
		y.server.SetMinimumWait(list, time.Hour)
	}
	if y.calm != nil {
		y.calm(y)
	}
	searched := len(y.server.Requests("search"))
	time.Sleep(longestWait + 20*time.Hour) // which may be running, and a suspend
	time.Sleep(48 * time.Hour)             // a back-off of all lists, and one of a single list
	y.check()
	y.current.stop()
	testkit.Equal(y.t, "a search was answered since the server has been well", len(y.server.Requests("search")) > searched, true)
	testkit.Equal(y.t, "relays took over", y.takeovers > 0, y.shared != nil)
	y.t.Logf("%d months: %d starts, %d takeovers, %d losses of the network, %d versions of lists, %d requests for updates, %d searches",
		*yearMonths, y.starts, y.takeovers, y.losses, y.published, len(y.server.Requests("update")), len(y.server.Requests("search")))
}

func (y *year) list() string { return y.lists[y.chance.IntN(len(y.lists))] }

// check compares what is in force with what the server has.
func (y *year) check() {
	got := mapped(y.current.database.Lists(), func(l lookup.List) string {
		raw, err := io.ReadAll(l.Set.Reader())
		must(y.t, err)
		return string(raw)
	})
	want := mapped(y.lists, func(list string) string { return strings.Join(sorted(y.content[list]), "") })
	testkit.Equal(y.t, "the lists of the server", got, want)
}

// spoken is what a year depends on the version of the protocol for.
type spoken struct {
	lists  []string
	widths func(list string, chance *rand.Rand) int // of an entry
	faults func() map[string]protocoltest.Fault
	client func(cfg protocol.Config, database *lookup.Database) (protocol.Client, error)
	search updater.SearchRules
	prefix func(entry []byte) lookup.Prefix // that is searched for
	single bool                             // one prefix a search
	waits  func(y *year)                    // sets waits of methods, at random; nil: it has none
	calm   func(y *year)                    // ends them
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

// life is one run of a client process.
type life struct {
	dir      string
	database *lookup.Database
	schedule *updater.Schedule
	dead     atomic.Bool         // crashed: no request leaves it any more
	view     *updater.MemoryView // of a relay; nil: a single process
	ctx      context.Context     // ends with cancel
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
			prefixes = append(prefixes, prefix)
		}
		slices.Sort(prefixes)
		prefixes = slices.Compact(prefixes)
		if speaks.single {
			prefixes = prefixes[:min(1, len(prefixes))]
		}
		if len(prefixes) > 0 {
			searchCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
			searcher.Search(searchCtx, prefixes)
			cancel()
		}
	}
}

var errDead = errors.New("this process has crashed")

// roundTripper returns the way of a process to the server.
func (l *life) roundTripper(y *year) http.RoundTripper {
	t, server := y.t, y.server
	return &yearRoute{roundTrip(func(r *http.Request) (*http.Response, error) {
		if l.dead.Load() {
			return nil, errDead
		}
		if err := y.network(); err != nil {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn(r.URL.Host)
			if y.noTLS.Load() {
				trace.ConnectDone("tcp", r.URL.Host, nil)
			}
			return nil, err
		}
		if y.spoken.search.Published && strings.Contains(strings.ToLower(r.URL.Path), "hashes:") && time.Now().Before(l.contact) {
			t.Errorf("the first search is sent %s before the first contact", time.Until(l.contact))
		}
		return server.RoundTrip(r)
	}), y}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type yearRoute struct {
	http.RoundTripper
	year *year
}

// Reach makes a connection without a request.
func (r *yearRoute) Reach(context.Context, *url.URL) error {
	if r.year.noTLS.Load() {
		return nil
	}
	return r.year.network()
}

var errAway = errors.New("the network is away")

// within returns a random time below a limit.
func (y *year) within(limit time.Duration) time.Duration {
	return time.Duration(y.chance.Int64N(int64(limit)))
}

// network returns an error while the network is away, or TLS cannot be established.
func (y *year) network() error {
	if time.Now().UnixNano() < y.away.Load() {
		return errAway
	}
	return nil
}

// loseNetwork takes the network away for up to two days, or lets TLS fail.
func (y *year) loseNetwork() {
	y.losses++
	y.noTLS.Store(y.chance.IntN(4) == 0)
	y.away.Store(time.Now().Add(y.within(48 * time.Hour)).UnixNano())
}

// syncTime is how long a sync lasts in a year. A folder in memory needs none; a crash may come meanwhile, as with a disk.
const syncTime = 20 * time.Millisecond

func (y *year) start() {
	y.startProcess()
	y.beginSearching()
}

// startProcess starts a process that searches for nothing yet.
func (y *year) startProcess() {
	y.starts++
	l := &life{dir: y.folderDir(y.folder), database: &lookup.Database{MaxFiltered: -1}, stopSearching: func() {}}
	store := openStore(y.t, l.dir, updater.Origin{Name: "test"})
	store.SetBoot(y.boot)
	store.SetSync(func() { time.Sleep(syncTime) })
	if y.shared != nil {
		l.view = y.shared.View()
		store.Share(l.view)
	}
	var err error
	l.schedule, err = updater.NewSchedule(store)
	must(y.t, err)
	chance := rand.New(rand.NewPCG(y.chance.Uint64(), 2)) // of this client's one goroutine
	var mu sync.Mutex                                     // the schedule draws in several goroutines
	backoffs := rand.New(rand.NewPCG(y.chance.Uint64(), 4))
	l.schedule.SetRandom(func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return backoffs.Float64()
	})
	l.client, err = y.client(protocol.Config{Key: "key", UserAgent: "year/1", Transport: l.roundTripper(y)}, l.database)
	must(y.t, err)
	u, err := updater.New(updater.Config{
		Source: l.client, Database: l.database, Schedule: l.schedule, Store: store, Lists: y.lists, Report: l.report(y.t),
		FirstContact: func() time.Duration { return time.Duration(chance.Float64() * float64(time.Minute)) },
	})
	must(y.t, err)
	u.SetSleep(func(ctx context.Context, d time.Duration) error {
		if chance.IntN(300) == 0 { // the machine is suspended
			d += time.Duration(chance.Int64N(int64(20 * time.Hour)))
		}
		return updater.Sleep(ctx, d)
	}, time.Hour)
	u.Load()
	l.ctx, l.cancel = context.WithCancel(y.t.Context())
	l.wg.Go(func() { u.Run(l.ctx) })
	y.current = l
}

// beginSearching makes the current process search now and then.
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
	y.server.Publish(list, mapped(sorted(held), func(e string) []byte { return []byte(e) }))
	y.published++
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// longestWait is the longest minimum wait that the server gives: more than a day, where back-offs end.
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
	y.server.SetMinimumWait(list, shortest+y.within(longest-shortest))
}

// setMethodWaits sets the waits of methods, where there are some, and how removals are coded.
func (y *year) setMethodWaits() {
	if y.waits != nil {
		y.waits(y)
	}
	y.server.SetRawRemovals(y.chance.IntN(2) == 0)
}

// breakSomething queues a fault for one to thirty requests.
func (y *year) breakSomething() {
	faults := y.faults()
	// An endless body takes a hundred times as long as all others; it has its own test.
	maps.DeleteFunc(faults, func(_ string, fault protocoltest.Fault) bool { return fault.EndlessBody })
	fault := faults[slices.Sorted(maps.Keys(faults))[y.chance.IntN(len(faults))]]
	if y.chance.IntN(2) == 0 {
		fault.List = y.list()
	}
	if y.chance.IntN(5) == 0 {
		fault.Delay = y.within(4 * time.Minute)
	}
	if fault.Status != 0 && y.chance.IntN(5) == 0 { // which counts for a day at most
		fault.RetryAfter = 10 * 365 * 24 * time.Hour
	}
	y.server.Break("", 1+int(y.chance.ExpFloat64()*3), fault)
}

// refuse makes the server refuse batches, a list, or all lists, for some time.
func (y *year) refuse() {
	fault := protocoltest.Fault{Status: []int{http.StatusBadRequest, http.StatusNotFound}[y.chance.IntN(2)]}
	switch y.chance.IntN(3) {
	case 0:
		fault.Batch = true
	case 1:
		fault.List = y.list()
	}
	y.server.Break("update", 1+y.chance.IntN(30), fault)
}

// restart stops the client as a service manager does, and starts it after a while, in which the machine may boot.
func (y *year) restart(pause time.Duration) {
	y.current.stop()
	time.Sleep(pause)
	if y.chance.IntN(3) == 0 {
		y.reboot()
	}
	y.server.ClientStarted()
	y.start()
}

// reload starts a second client in the same folder before the first is stopped, as a Corefile does whose settings changed.
func (y *year) reload() {
	old := y.current
	old.stopSearching()
	y.server.ClientStarted()
	y.start()
	time.Sleep(y.within(5 * time.Second))
	old.stop()
	y.server.ClientStarted()
}

// crash ends the client at once, whatever it does: nothing that it does afterwards reaches the disk or the server.
func (y *year) crash() {
	y.folder = y.kill(y.current)
	y.server.ClientStarted()
	y.start()
}

// crashLoop is a client that dies again and again soon after its start.
func (y *year) crashLoop() {
	for range y.chance.IntN(20) {
		time.Sleep(y.within(3 * time.Minute))
		y.crash()
	}
}

// setClock sets the wall clock of the machine while no client runs, after a stop or a crash. Set back, the next client finds
// files from the future. Set forward, it finds files whose waits have ended, and only the clock since boot tells otherwise.
func (y *year) setClock() {
	if y.chance.IntN(2) == 0 {
		y.current.stop()
	} else {
		y.folder = y.kill(y.current)
	}
	forward := y.within(2000*time.Hour) - 1000*time.Hour
	must(y.t, updater.SetClock(y.folderDir(y.folder), forward))
	y.server.ClientStarted()
	y.start()
}

// reboot begins another boot, with a right wall clock: one that is set forward over a reboot looks like time that has passed.
func (y *year) reboot() { y.boots, y.booted = y.boots+1, time.Now() }

// boot is what the machine knows of its boot.
func (y *year) boot() (id string, since time.Duration) {
	return fmt.Sprint("boot ", y.boots), time.Since(y.booted)
}

func (y *year) folderDir(n int) string { return filepath.Join(y.dir, fmt.Sprint(n)) }

// TestAYearOfRelaysWithoutViolation is the same for two relays with a folder each, which share a store in memory: one fetches, the other
// takes over when it dies, ends or is cut off. To the server they are one client: a wait that the first was given holds for the second.
func TestAYearOfRelaysWithoutViolation(t *testing.T) {
	liveYears(t, max(1, *yearSeeds/8), func(y *year) { y.shared = updater.NewMemoryShared() })
}

// takeOver starts the other relay, which follows for some time, and ends the first one.
func (y *year) takeOver() {
	first := y.current
	y.folder, y.other = y.other, y.folder
	y.startProcess()
	time.Sleep(y.within(3 * time.Minute))
	first.stopSearching() // its clock of searches is known to the second one after a second
	switch y.chance.IntN(3) {
	case 0:
		y.other = y.kill(first)
	case 1:
		first.stop()
	case 2:
		first.view.Cut()
		time.Sleep(updater.HeldLease + time.Second) // its request, if there was one, has ended
		y.server.ClientStarted()
		time.Sleep(y.within(2 * time.Minute))
		y.other = y.kill(first)
	}
	y.server.ClientStarted() // a content that the first one did not publish is lost
	time.Sleep(updater.DeadLease + 2*time.Second)
	y.takeovers++
	y.beginSearching()
}

// kill ends a process at once, and returns its folder as it is at this moment.
func (y *year) kill(l *life) (folder int) {
	y.folders++
	must(y.t, os.CopyFS(y.folderDir(y.folders), os.DirFS(l.dir)))
	l.dead.Store(true)
	if l.view != nil {
		l.view.Cut()
	}
	l.stop()
	return y.folders
}
