package updater_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
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
	must     = testkit.Must
	inBubble = updater.InBubble
)

func errOf[T any](_ T, err error) error { return err }

func entriesOf(all ...byte) (out [][]byte) {
	for _, b := range all {
		out = append(out, []byte{b, b, b, b})
	}
	return out
}

// run is one run of an updater, with all that it reported.
type run struct {
	t        *testing.T
	database *lookup.Database
	schedule *updater.Schedule
	updater  *updater.Updater
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu     sync.Mutex
	events []updater.Event
}

// mapped returns what f makes of each.
func mapped[S, T any](all []S, f func(S) T) (out []T) {
	for _, one := range all {
		out = append(out, f(one))
	}
	return out
}

// serverOf returns a server of lists of these entries, with a minimum wait for each, and for lists that come later; 0: none.
func serverOf(t *testing.T, wait time.Duration, lists held) *protocoltest.Server {
	server := protocoltest.New(t)
	server.SetMinimumWait("", wait)
	for list, entries := range lists {
		server.Publish(list, entriesOf(entries...))
	}
	return server
}

// newRun returns an updater of lists over a server, whose state is in dir.
func newRun(t *testing.T, server *protocoltest.Server, dir string, lists ...string) *run {
	t.Helper()
	client, err := protocol.NewV5(protocol.Config{Key: "key", UserAgent: "run/1", Transport: server})
	must(t, err)
	return newRunOf(t, client, openStore(t, dir, updater.Origin{Name: "test"}), lists...)
}

// newRunOf is newRun over any source, and with a store; nil: it is in memory.
func newRunOf(t *testing.T, source updater.Source, store *updater.Store, lists ...string) *run {
	t.Helper()
	r := &run{t: t, database: &lookup.Database{MaxFiltered: -1}}
	var err error
	if r.schedule, err = updater.NewSchedule(store); err != nil {
		r.report(updater.Event{Kind: updater.LoadFailed, Err: err})
	}
	r.updater, err = updater.New(updater.Config{
		Source: source, Database: r.database, Schedule: r.schedule, Store: store, Lists: lists, Report: r.report,
	})
	must(t, err)
	return r
}

func (r *run) report(e updater.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *run) reported(kind updater.Kind) (found []updater.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e updater.Event) bool { return e.Kind != kind })
}

func (r *run) times(kind updater.Kind) int { return len(r.reported(kind)) }

// only returns the one event of a kind.
func (r *run) only(kind updater.Kind) updater.Event {
	r.t.Helper()
	found := r.reported(kind)
	if len(found) != 1 {
		r.t.Fatalf("%d events of kind %d, want one: %+v", len(found), kind, found)
	}
	return found[0]
}

func (r *run) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

func (r *run) start() bool {
	all := r.updater.Load()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	r.wg.Go(func() {
		if err := r.updater.Run(ctx); !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run ended with %v", err)
		}
	})
	return all
}

func (r *run) started() *run {
	r.start()
	return r
}

func (r *run) stop() {
	r.cancel()
	r.wg.Wait()
}

// held are the entries that should be in force, by list; nil: the list must not be in force at all.
type held map[string][]byte

func (r *run) checkHeld(when string, want held) {
	r.t.Helper()
	got := make(map[string]string)
	for _, l := range r.database.Lists() {
		raw, _ := io.ReadAll(l.Set.Reader())
		got[l.Name] = string(raw)
	}
	for list, entries := range want {
		raw, inForce := got[list]
		if text := string(bytes.Join(entriesOf(entries...), nil)); raw != text || inForce != (entries != nil) {
			r.t.Errorf("%s: list %s holds %x, want %x", when, list, raw, text)
		}
	}
}

// waitForFault lets time pass until the server has spoilt n answers and the client has dealt with them.
func waitForFault(t *testing.T, server *protocoltest.Server, n int) {
	t.Helper()
	for range 48 * 60 {
		if len(slices.DeleteFunc(server.Requests("update"), func(r protocoltest.Request) bool { return !r.Fault || !r.Done })) == n {
			synctest.Wait()
			return
		}
		time.Sleep(time.Minute)
	}
	t.Fatal("no answer was ever spoilt")
}

// checkTold fails unless the events since the last forget say what went wrong: with each list, or with the whole request.
func (r *run) checkTold(lists ...string) {
	r.t.Helper()
	fetched, kind := r.only(updater.Fetched), updater.ListRejected
	if fetched.Err != nil {
		kind = updater.ListWaiting
	}
	told := mapped(r.reported(kind), func(e updater.Event) string {
		content := errors.Is(e.Err, updater.ErrMalformed) || errors.Is(e.Err, updater.ErrChecksum)
		testkit.Equal(r.t, e.List+": its content is bad, or the fetch failed", content, fetched.Err == nil)
		testkit.Between(r.t, e.List+" is due in", time.Until(e.Due), 9*time.Minute, math.MaxInt64)
		return e.List
	})
	testkit.Equal(r.t, "lists that are told of", told, lists)
	testkit.Equal(r.t, "lists that are told to be well", r.times(updater.ListUpdated)+r.times(updater.ListUnchanged), 0)
}

func TestListsSurviveEveryFaultOfTheFirstAnswerAndOfAPartialUpdate(t *testing.T) {
	for name, f := range protocoltest.ListFaults() {
		dir := t.TempDir()
		inBubble(t, name, func(t *testing.T) {
			server := serverOf(t, 0, held{"se-4b": {1, 2}, "mw-4b": {3, 4, 5}})
			server.Break("update", 1, f)
			r := newRun(t, server, dir, "se-4b", "mw-4b")
			testkit.Equal(t, "an empty folder has all lists", r.start(), false)
			r.forget()
			waitForFault(t, server, 1)
			r.checkTold("se-4b", "mw-4b")
			r.checkHeld("after the fault", held{"se-4b": nil, "mw-4b": nil})
			time.Sleep(3 * time.Hour)
			r.checkHeld("after the repair", held{"se-4b": {1, 2}, "mw-4b": {3, 4, 5}})
			testkit.Equal(t, "first contacts", r.times(updater.FirstContact), 1)

			r.stop()
			time.Sleep(time.Hour) // both are due together now
			server.ClientStarted()
			server.Publish("se-4b", entriesOf(1, 7))
			server.Publish("mw-4b", entriesOf(4, 5, 6))
			server.Break("update", 1, f)
			r = newRun(t, server, dir, "se-4b", "mw-4b").started()
			r.forget()
			waitForFault(t, server, 2)
			r.checkTold("se-4b", "mw-4b")
			r.checkHeld("after the fault of a partial update", held{"se-4b": {1, 2}, "mw-4b": {3, 4, 5}})
			r.stop()

			server.ClientStarted() // what was saved is still good
			r = newRun(t, server, dir, "se-4b", "mw-4b")
			testkit.Equal(t, "all lists are loaded", r.start(), true)
			r.checkHeld("after a restart", held{"se-4b": {1, 2}})
			time.Sleep(4 * time.Hour)
			r.checkHeld("after the repair", held{"se-4b": {1, 7}, "mw-4b": {4, 5, 6}})
			r.stop()
		})
	}
	inBubble(t, "a broken list does not hold the others back", func(t *testing.T) {
		lists := []string{"se-4b", "mw-4b", "uws-4b"}
		server := serverOf(t, 10*time.Minute, held{"se-4b": {1, 2}, "mw-4b": {1, 2}, "uws-4b": {1, 2}})
		r := newRun(t, server, t.TempDir(), lists...).started()
		time.Sleep(2 * time.Minute)
		for _, list := range lists {
			server.Publish(list, entriesOf(2, 3))
		}
		server.Break("update", 1, protocoltest.Fault{WrongChecksum: true, List: "mw-4b"})
		waitForFault(t, server, 1)
		r.checkHeld("after the fault", held{"se-4b": {2, 3}, "mw-4b": {1, 2}, "uws-4b": {2, 3}})
		rejected := r.only(updater.ListRejected)
		testkit.Equal(t, "rejected, and its entries", []any{rejected.List, rejected.Entries}, []any{"mw-4b", 2})
		testkit.Is(t, "rejected for", rejected.Err, updater.ErrChecksum)
		time.Sleep(35 * time.Minute)
		r.checkHeld("after the repair", held{"mw-4b": {2, 3}})
		last := server.Requests("update")
		full := slices.ContainsFunc(last, func(q protocoltest.Request) bool {
			return slices.Equal(q.Lists, []string{"mw-4b"}) && q.Versions == nil
		})
		testkit.Equal(t, "the broken list was fetched in full by itself", full, true)
		r.stop()
	})
}

// The one that fetches may have been started before the key was replaced.
func TestAFollowerWithAnotherKeyHasTheListsOfTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, 20*time.Minute, held{"se-4b": {1}})
		client, err := protocol.NewV5(protocol.Config{Key: "key", UserAgent: "run/1", Transport: server})
		must(t, err)
		dir := t.TempDir()
		first := newRunOf(t, client, openStore(t, dir, updater.Origin{Name: "test", Asker: "old"}), "se-4b").started()
		synctest.Wait()
		second := newRunOf(t, client, openStore(t, dir, updater.Origin{Name: "test", Asker: "new"}), "se-4b").started()
		for b := range byte(3) {
			server.Publish("se-4b", entriesOf(b))
			time.Sleep(25 * time.Minute)
			second.checkHeld("after an update of the other one", held{"se-4b": {b}})
		}
		if told := second.reported(updater.Followed); len(told) == 0 || time.Since(told[len(told)-1].Updated) > 25*time.Minute {
			t.Errorf("told %+v", told)
		}
		second.stop() // while it waits for the folder
		first.stop()
	})
}

func TestOnADiskThatCannotBeWrittenListsAreStillInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, time.Hour, held{"se-4b": {1, 2}})
		dir := filepath.Join(t.TempDir(), "lists")
		r := newRun(t, server, dir, "se-4b")
		must(t, errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600))) // stops even root
		r.start()
		time.Sleep(time.Minute)
		r.checkHeld("after the first contact", held{"se-4b": {1, 2}})
		server.Publish("se-4b", entriesOf(2))
		time.Sleep(time.Hour)
		r.checkHeld("after the minimum wait", held{"se-4b": {2}})
		failed := r.reported(updater.StoreFailed)
		testkit.Between(t, "reports of trouble with the disk", len(failed), 5, 100)
		named := slices.ContainsFunc(failed, func(e updater.Event) bool { return e.List == "se-4b" && e.Err != nil })
		testkit.Equal(t, "one names the list", named, true)
		must(t, errors.Join(os.Remove(dir), os.Mkdir(dir, 0o750)))
		time.Sleep(time.Hour) // the answer changes nothing
		saved, err := updater.Status(dir)
		must(t, err)
		testkit.Equal(t, "entries that are saved", mapped(saved, func(s updater.ListStatus) int { return s.Entries }), []int{1})
		r.stop()
	})
}

// A fetch that ends because the server is shut down is no failure: after the restart it is done again soon.
func TestAShutdownDuringAFetch(t *testing.T) {
	inBubble(t, "before the answer", func(t *testing.T) {
		server := serverOf(t, time.Hour, held{"se-4b": {1}})
		server.Break("update", 1, protocoltest.Fault{Delay: 4 * time.Minute})
		dir := t.TempDir()
		r := newRun(t, server, dir, "se-4b").started()
		time.Sleep(2 * time.Minute)
		r.stop()
		cancelled := mapped(server.Requests(""), func(r protocoltest.Request) bool { return r.Cancelled })
		testkit.Equal(t, "requests that were cancelled", cancelled, []bool{true})
		testkit.Equal(t, "fetches and first contacts", [2]int{r.times(updater.Fetched), r.times(updater.FirstContact)}, [2]int{})
		server.ClientStarted()
		r = newRun(t, server, dir, "se-4b").started()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.checkHeld("after the restart", held{"se-4b": {1}})
		r.stop()
	})
	// A status that was read before the shutdown is one, also if the shutdown has begun meanwhile.
	inBubble(t, "with a status", func(t *testing.T) {
		dir, status := t.TempDir(), &updater.StatusError{Code: 503}
		source := &scripted{answers: []func(string) *updater.Update{full("1", prefix(1))}, errs: []error{status}}
		r := newRunOf(t, source, openStore(t, dir, updater.Origin{Name: "test"}), "se-4b")
		source.then = func() { r.cancel() }
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		source.then = nil
		r = newRunOf(t, source, openStore(t, dir, updater.Origin{Name: "test"}), "se-4b").started()
		time.Sleep(14 * time.Minute)
		source.last(t, 1)
		time.Sleep(time.Hour)
		r.checkHeld("after the back-off", held{"se-4b": {1}})
		r.stop()
	})
}

// sourceFunc is a source that only fails, after it has told somebody.
type sourceFunc func()

func (f sourceFunc) Fetch(context.Context, []updater.Want, func(int, *updater.Update)) (time.Duration, error) {
	f()
	return 0, errors.New("nothing here")
}

// A source that panics must not take the name server down. It is asked at the first contact, as configured.
func TestASourceThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked, begun := &run{t: t, database: new(lookup.Database)}, time.Duration(0), time.Now()
		schedule, err := updater.NewSchedule(nil)
		must(t, err)
		r.updater, err = updater.New(updater.Config{
			Source: sourceFunc(func() { asked = time.Since(begun); panic("oh") }), Database: r.database, Schedule: schedule,
			Lists: []string{"se-4b"}, FirstContact: func() time.Duration { return 59 * time.Second }, Report: r.report,
		})
		must(t, err)
		r.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.WantError(t, r.only(updater.Fetched).Err, "oh")
		testkit.Equal(t, "asked after", asked, 59*time.Second)
		r.stop()
	})
}

func TestNewRefusesWhatMakesNoSense(t *testing.T) {
	schedule, err := updater.NewSchedule(nil)
	must(t, err)
	good := updater.Config{Source: sourceFunc(nil), Database: new(lookup.Database), Schedule: schedule, Lists: []string{"se-4b"}}
	testkit.Is(t, "a good configuration", errOf(updater.New(good)), nil)
	for name, alter := range map[string]func(*updater.Config){
		"no source":         func(c *updater.Config) { c.Source = nil },
		"no database":       func(c *updater.Config) { c.Database = nil },
		"no schedule":       func(c *updater.Config) { c.Schedule = nil },
		"a list twice":      func(c *updater.Config) { c.Lists = []string{"se-4b", "se-4b"} },
		"a list of a path":  func(c *updater.Config) { c.Lists = []string{"../se-4b"} },
		"a list of no size": func(c *updater.Config) { c.Lists = []string{"se"} },
	} {
		cfg := good
		alter(&cfg)
		testkit.Equal(t, name+" is refused", errOf(updater.New(cfg)) != nil, true)
	}
}

func TestWithoutListsOnlyTheScheduleIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunOf(t, sourceFunc(nil), nil) // it panics when it is asked
		testkit.Equal(t, "all of no lists are loaded", r.updater.Load(), true)
		ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
		defer cancel()
		testkit.Is(t, "the end of Run", r.updater.Run(ctx), context.DeadlineExceeded)
		kinds := mapped(r.events, func(e updater.Event) updater.Kind { return e.Kind })
		testkit.Equal(t, "events", kinds, []updater.Kind{updater.Started, updater.FirstContact})
	})
}

// A router without a clock starts with the time of its newest file, and some are restarted each day.
func TestAWaitOfADayEndsOnARouterThatIsRestartedDaily(t *testing.T) {
	const up, behind, day = 20 * time.Hour, 5 * 24 * time.Hour, 24 * time.Hour
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, 0, held{"mw-4b": {1}})
		server.Break("", 2, protocoltest.Fault{Status: http.StatusTooManyRequests, RetryAfter: day})
		for boot := range 3 {
			client, err := protocol.NewV5(protocol.Config{Key: "key", UserAgent: "run/1", Transport: server})
			must(t, err)
			store := openStore(t, dir, updater.Origin{Name: "test"})
			began := time.Now()
			store.SetBoot(func() (string, time.Duration) { return fmt.Sprint("boot", boot), time.Since(began) })
			r := newRunOf(t, client, store, "mw-4b").started()
			if boot == 0 {
				searcher := updater.Pace(client, r.schedule, protocol.DialectV5.SearchRules, r.report)
				testkit.WantError(t, errOf(searcher.Search(t.Context(), []lookup.Prefix{"\x01\x01\x01\x01"})), "429")
			}
			time.Sleep(up)
			synctest.Wait() // a request of this very moment ends before the shutdown
			left := max(0, time.Until(r.schedule.SearchHold().Until))
			testkit.Equal(t, fmt.Sprintf("boot %d: searches wait for", boot), left, []time.Duration{day - up, 0, 0}[boot])
			r.stop()
			r.schedule.Flush()
			must(t, updater.SetClock(dir, -behind))
		}
		testkit.Between(t, "requests for lists", len(server.Requests("update")), 2, 100)
	})
}
