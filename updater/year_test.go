package updater_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	yearSeeds = flag.Int("year.seeds", 20, "how many years TestAYearWithoutViolation simulates")
	yearSeed  = flag.Uint64("year.seed", 0, "simulate only the year of this seed; 0: all")
)

// TestAYearWithoutViolation lets an updater live through a year of simulated
// time for each seed: new versions, faults of every kind, minimum waits of all
// lengths and none, restarts, reloads, crashes in the middle of whatever goes
// on, and suspends. The server is the referee. At the end, when the server is
// well again, the updater must have caught up.
func TestAYearWithoutViolation(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*yearSeeds); seed++ {
		if *yearSeed != 0 && seed != *yearSeed {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir := memoryDir(t)
			synctest.Test(t, func(t *testing.T) { newYear(t, dir, seed).live() })
		})
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
	t      *testing.T
	chance *rand.Rand // of the script; not for the client's goroutines
	server *protocoltest.Server
	dir    string // holds one folder for each crash
	folder int
	end    time.Time

	lists   []string
	content map[string]map[string]bool // what the server published, by list
	current *life
}

func newYear(t *testing.T, dir string, seed uint64) *year {
	y := &year{
		t:       t,
		chance:  rand.New(rand.NewPCG(seed, 1)),
		server:  protocoltest.New(t),
		dir:     dir,
		end:     time.Now().AddDate(1, 0, 0),
		lists:   []string{"se-4b", "mw-4b", "own-32b"},
		content: make(map[string]map[string]bool),
	}
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
		switch y.chance.IntN(12) {
		case 0, 1, 2, 3:
			y.publish(y.list())
		case 4:
			y.setWait(y.list())
		case 5, 6, 7:
			y.breakSomething()
		case 8:
			y.restart(time.Duration(y.chance.Int64N(int64(time.Hour))))
		case 9:
			y.reload()
		case 10:
			y.crash()
		case 11:
			y.crashLoop()
		}
	}
	y.server.Repair()
	for _, list := range y.lists {
		y.server.SetMinimumWait(list, time.Hour)
	}
	time.Sleep(60 * time.Hour) // the longest wait that may be running, back-off, and a suspend
	y.check()
	y.current.stop()
}

func (y *year) list() string { return y.lists[y.chance.IntN(len(y.lists))] }

// publish makes a next version: some entries go, some come.
func (y *year) publish(list string) {
	width, err := updater.Width(list)
	if err != nil {
		y.t.Fatal(err)
	}
	held := y.content[list]
	for _, e := range sorted(held) {
		if y.chance.IntN(4) == 0 {
			delete(held, e)
		}
	}
	for range y.chance.IntN(8) {
		entry := make([]byte, width)
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

func (y *year) setWait(list string) {
	if y.chance.IntN(20) == 0 {
		y.server.SetMinimumWait(list, 0)
		return
	}
	shortest, longest := 30*time.Minute, 40*time.Hour
	y.server.SetMinimumWait(list, shortest+time.Duration(y.chance.Int64N(int64(longest-shortest))))
}

// breakSomething queues a fault for one to thirty requests.
func (y *year) breakSomething() {
	faults := protocoltest.ListFaults()
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
	y.server.Break("", 1+int(y.chance.ExpFloat64()*3), fault)
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
	y.server.ClientStarted()
	y.start()
	time.Sleep(time.Duration(y.chance.Int64N(int64(5 * time.Second))))
	old.stop()
	y.server.ClientStarted()
}

// crash ends the client at once, whatever it does: nothing that it does
// afterwards reaches the disk or the server.
func (y *year) crash() {
	y.folder++
	copyFolder(y.t, y.current.dir, y.nextDir())
	y.current.dead.Store(true)
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

func (y *year) nextDir() string { return filepath.Join(y.dir, fmt.Sprint(y.folder)) }

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
	dead     atomic.Bool // crashed: it reaches nobody any more
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

func (l *life) stop() {
	l.cancel()
	l.wg.Wait()
}

var errDead = errors.New("this process has crashed")

// RoundTrip implements http.RoundTripper.
func (l *life) roundTripper(server *protocoltest.Server) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if l.dead.Load() {
			return nil, errDead
		}
		return server.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (y *year) start() {
	l := &life{dir: y.nextDir(), database: new(lookup.Database)}
	store, err := updater.OpenStore(l.dir, "test")
	if err != nil {
		y.t.Fatal(err)
	}
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		y.t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(y.chance.Uint64(), 2)) // of this client's one goroutine
	schedule.SetRandom(chance.Float64)
	client, err := protocol.NewClient(protocol.Config{Key: "key", UserAgent: "year/1", Transport: l.roundTripper(y.server)})
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
	y.current = l
}

// report fails the test for trouble with the disk: there is none in this world.
func (l *life) report(t *testing.T) func(updater.Event) {
	return func(e updater.Event) {
		if e.Kind == updater.StoreFailed || e.Kind == updater.LoadFailed {
			t.Errorf("event %d of list %q: %v", e.Kind, e.List, e.Err)
		}
	}
}
