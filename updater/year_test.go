package updater_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime/debug"
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
	yearSeed   = flag.Uint64("year.seed", 0, "simulate only the year of this seed; 0: all")
)

// seedsOfYears returns the seeds of the years that a test simulates, if it simulates n of them.
func seedsOfYears(n int) (seeds []uint64) {
	if *yearSeed != 0 {
		return []uint64{*yearSeed}
	}
	for i := range n {
		seeds = append(seeds, *yearFirst+uint64(i))
	}
	return seeds
}

// TestAYearWithoutViolation lets an updater live through a year of simulated time for each seed: new versions, faults
// of every kind, minimum waits of all lengths and none, servers that refuse batches or lists, restarts, reloads,
// crashes in the middle of anything, reboots, suspends, and clocks that are set back or forward while nothing
// runs. Meanwhile full hashes are searched for. The server is the referee. At the end, when the server is well again,
// the updater must have caught up.
func TestAYearWithoutViolation(t *testing.T) {
	testkit.Long(t)
	total := sumOfYears(t)
	for version, speaks := range versions {
		for _, seed := range seedsOfYears(*yearSeeds) {
			t.Run(fmt.Sprint(version, "/", seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) { total.live(newYear(t, speaks, dir, seed)) })
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
		time.Sleep(time.Duration(y.chance.Int64N(int64(72 * time.Hour))))
		switch y.chance.IntN(15) {
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
	return len(y.server.Requests("search"))
}

func (y *year) list() string { return y.lists[y.chance.IntN(len(y.lists))] }

// check compares what is in force with what the server has.
func (y *year) check() {
	published := y.current.database.Lists()
	if len(published) != len(y.lists) {
		y.t.Fatalf("%d lists are in force, want %d", len(published), len(y.lists))
	}
	for i, list := range y.lists {
		got, err := io.ReadAll(published[i].Set.Reader())
		must(y.t, err)
		var want bytes.Buffer
		for _, e := range sorted(y.content[list]) {
			want.WriteString(e)
		}
		if !bytes.Equal(got, want.Bytes()) {
			y.t.Errorf("list %s has not caught up with the server: %d bytes, want %d", list, len(got), want.Len())
		}
	}
}

// yearSum counts what happened in the years of a test. It is safe for concurrent use.
type yearSum struct {
	mu                                                            sync.Mutex
	years, starts, takeovers, losses, versions, updates, searches int
}

// sumOfYears returns the sum that is logged when all years of the test are over. Until then
// garbage is collected less often: a year makes much of it, and needs little memory.
func sumOfYears(t *testing.T) *yearSum {
	s := new(yearSum)
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		t.Logf("%d years of %d months: %d starts, %d takeovers, %d losses of the network, %d versions of lists, %d requests for updates, %d searches",
			s.years, *yearMonths, s.starts, s.takeovers, s.losses, s.versions, s.updates, s.searches)
	})
	return s
}

// live lives through a year, and counts it unless the test ends there.
func (s *yearSum) live(y *year) {
	y.live()
	updates, searches := len(y.server.Requests("update")), y.searches()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.years++
	s.starts += y.starts
	s.takeovers += y.takeovers
	s.losses += y.losses
	s.versions += y.published
	s.updates += updates
	s.searches += searches
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
