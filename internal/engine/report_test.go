package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// listing returns a server whose list se-4b has one entry and is to be asked for after a wait; 0: it does not say.
func listing(t *testing.T, wait time.Duration) *protocoltest.Server {
	google := protocoltest.New(t)
	google.SetMinimumWait("", wait)
	google.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
	return google
}

// atOnce is for Edge.FirstContact.
func atOnce() time.Duration { return 0 }

// started returns an engine that has just started.
func started(t *testing.T, s Settings, key string, edge Edge) *Engine {
	t.Helper()
	e, err := newEngine(s, key, edge, past{make(schedules), make(ledgers)}, func() {})
	testkit.Must(t, err)
	e.start(key)
	return e
}

// reporting returns a reporter with a schedule in memory.
func reporting(t *testing.T, s Settings) *reporter {
	t.Helper()
	schedule, err := updater.NewSchedule(nil)
	testkit.Must(t, err)
	r := newReporter(s, func() {})
	r.schedule = schedule
	return r
}

// life starts the engine of a bubble, and ends it.
func life(t *testing.T, s Settings, google *protocoltest.Server, contact time.Duration) (e *Engine, end func()) {
	t.Helper()
	e = started(t, s, "key", Edge{Transport: google, FirstContact: func() time.Duration { return contact }})
	synctest.Wait()
	return e, func() { e.stop(); google.ClientStarted() }
}

// logged runs a test in simulated time, with what is logged.
func logged(t *testing.T, run func(t *testing.T, lines *testkit.Lines)) {
	synctest.Test(t, func(t *testing.T) { run(t, testkit.Capture(t)) })
}

// named runs a part of a test in simulated time, with what is logged.
func named(t *testing.T, name string, run func(t *testing.T, lines *testkit.Lines)) {
	t.Run(name, func(t *testing.T) { logged(t, run) })
}

// starts is life, and holds what the line of the start says.
func starts(t *testing.T, lines *testkit.Lines, s Settings, to *protocoltest.Server, contact time.Duration, parts ...string) func() {
	t.Helper()
	lines.Forget()
	_, end := life(t, s, to, contact)
	testkit.WantParts(t, lines.Only(t, " is on: "), parts...)
	return end
}

func TestTheStartSaysWhatProtects(t *testing.T) {
	s := Settings{Endpoint: "http://start.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b", DB: t.TempDir()}
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := listing(t, 30*time.Minute)
		google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}, {1, 2, 3, 5}})

		end := starts(t, lines, s, google, 40*time.Second, "is on: http://start.example", "[WARNING]", "Safe Browsing v5", "mode local",
			"NO list is in force yet (se-4b, mw-4b)", "db "+s.DB, "next request within a minute (first contact)")
		time.Sleep(time.Minute)
		end()

		time.Sleep(10 * time.Minute)
		end = starts(t, lines, s, google, 0, "[INFO]", "se-4b (1 entry, updated 10m ago), mw-4b (2 entries, updated 10m ago)",
			"next request not before "+say.Time(time.Now().Add(30*time.Minute-10*time.Minute-20*time.Second))+" (minimum wait of the server)")
		testkit.WantNone(t, lines.String(), "in force")
		google.Break("update", 1, protocoltest.Fault{Status: 503})
		time.Sleep(25 * time.Minute)
		end()

		starts(t, lines, s, google, 0, "[INFO]", "back-off after a failure at ", "status 503 Service Unavailable")()

		google.Break("update", 1000, protocoltest.Fault{Status: 503})
		time.Sleep(25 * time.Hour)
		starts(t, lines, s, google, time.Second, "[WARNING]", "OLD: updated 25h")()

		s.Lists += " uws-4b"
		starts(t, lines, s, google, time.Second, "[WARNING]", "uws-4b (not yet)")()
	})
}

func TestAFollowerSaysWhomItFollowsAndTellsTheTrueTimes(t *testing.T) {
	s := Settings{Endpoint: "http://follower.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b", DB: t.TempDir()}
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := listing(t, 30*time.Minute)
		google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}}) // which does not change
		_, endFirst := life(t, s, google, 0)
		fetched := time.Now()
		time.Sleep(time.Minute)
		other := s
		other.Lists += " uws-4b" // which the first process does not name
		starts(t, lines, other, google, 0, "[WARNING]", "se-4b (1 entry, ", "uws-4b (not yet)",
			"Lists that the other does not name never come: write the same mode and lists in both, or give this one another db")()
		end := starts(t, lines, s, google, 0, "[INFO]", "se-4b (1 entry, updated 1m ago)",
			"another process uses db and fetches the lists; this one reads them from there\n")
		testkit.Equal(t, "gauge", testkit.Metric(t, "list_last_success_timestamp_seconds", "list", "se-4b"), unixSeconds(fetched))
		google.Publish("se-4b", [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}})
		time.Sleep(31 * time.Minute)
		testkit.WantParts(t, lines.Only(t, "fetched by the process that keeps"), "[INFO]", "List se-4b now has 2 entries", say.Time(fetched.Add(30*time.Minute)))
		lines.Forget()
		endFirst()
		time.Sleep(5 * time.Second)
		testkit.WantParts(t, lines.Only(t, "is on: "), "[INFO]", "minimum wait of the server")
		testkit.WantNone(t, lines.String(), "fetched by")
		end()
	})
}

// A mistyped list is named, with what it was probably meant to be, and the others are fetched. A relay without -realtime has
// no list of likely safe hosts, and names the list that it lacks.
func TestAListThatTheServerDoesNotHaveIsNamed(t *testing.T) {
	s := Settings{Endpoint: "http://unknown.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b pha4-4b mw-4b", Mode: lookup.RealTime}
	for status, relay := range map[string]bool{"status 400": false, "status 404": true} {
		logged(t, func(t *testing.T, lines *testkit.Lines) {
			google := listing(t, 30*time.Minute)
			google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}})
			if relay {
				google.ActAsRelay()
			}
			_, end := life(t, s, google, 0)
			defer end()
			if !relay {
				testkit.WantParts(t, lines.Only(t, "Cannot update lists"), "[ERROR]", "se-4b, pha4-4b, mw-4b, gc-32b", status,
					"each list is requested by itself")
			}
			time.Sleep(24 * time.Hour)
			testkit.WantParts(t, lines.Only(t, "refuses list pha4-4b: "), "[ERROR]", "The server refuses list", status, "Did you mean pha-4b? ",
				"Other lists are asked for without it. This list has 0 entries in force. Next try not before ")
			testkit.WantParts(t, lines.Only(t, "refuses list gc-32b: "), "[ERROR]", status,
				"Mode realtime acts as mode local until it is there: start the relay with -realtime, or write mode local")
			lines.Only(t, "List se-4b now has 1 entry")
			lines.Only(t, "List mw-4b now has 2 entries")
			testkit.Equal(t, status+": it is said that lists are updated again", len(lines.About("Lists are updated again")) == 1, !relay)
			due := testkit.Metric(t, "list_next_due_timestamp_seconds", "list", "pha4-4b")
			testkit.Equal(t, "a gauge tells when the refused list is tried again", due > unixSeconds(time.Now()), true)
		})
	}
}

func TestAMinimumWaitAboveADayIsAWarning(t *testing.T) {
	wantLongWaits(t, protocol.DialectV5, "for lists se-4b. It is obeyed", "for lists mw-4b. It is obeyed")
}

// wantLongWaits holds which warnings tell of a minimum wait of two days.
func wantLongWaits(t *testing.T, d *protocol.Dialect, parts ...string) {
	t.Helper()
	s := Settings{Endpoint: "http://longwait.example", Protocol: d.Name, Lists: "se-4b mw-4b"}
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := listing(t, 48*time.Hour)
		google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}})
		_, end := life(t, s, google, 0)
		wantLines(t, lines, "minimum wait of 48h0m0s", parts...)
		until := "are not updated before " + say.Time(time.Now().Add(48*time.Hour))
		wantLines(t, lines, "[WARNING] plugin/safebrowsing: The server asks", slices.Repeat([]string{until}, len(parts))...)
		end()
	})
}

// wantLines holds how many lines there are about a text, and what each of them says.
func wantLines(t *testing.T, lines *testkit.Lines, about string, parts ...string) {
	t.Helper()
	got := lines.About(about)
	testkit.Equal(t, got, len(got), len(parts))
	for i := range min(len(got), len(parts)) {
		testkit.WantParts(t, got[i], parts[i])
	}
}

// One line when trouble begins and one when it ends, whatever the retries.
func TestADayWithoutListUpdatesIsTwoLines(t *testing.T) {
	s := Settings{Endpoint: "http://day.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := listing(t, 30*time.Minute)
		_, end := life(t, s, google, 0)
		defer end()
		google.Break("update", 1000, protocoltest.Fault{Status: 503})
		time.Sleep(24 * time.Hour)
		testkit.WantParts(t, lines.Only(t, "Cannot update lists"), "[ERROR]", "se-4b", "status 503", "The lists in force stay in force", "Next try not before")
		testkit.Between(t, "tries", len(google.Requests("update")), 4, 1000)
		google.Repair()
		google.Break("update", 1, protocoltest.Fault{Status: 403})
		time.Sleep(48 * time.Hour)
		wantLines(t, lines, "Cannot update lists", "status 503", "Check the API key")
		testkit.WantParts(t, lines.Only(t, "Lists are updated again"), "[INFO]", testkit.LocalTimes("since 2000-01-01T00:30:00Z"))
	})
}

// Lists of Web Risk are asked for one by one: what one of them brings is no end of the trouble of others.
func TestListsOfWebRiskThatAlwaysFailAreALineForEachCause(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := listing(t, 20*time.Minute)
		google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}})
		google.Publish("uws-4b", [][]byte{{1, 2, 3, 4}})
		s := Settings{Endpoint: "http://one-fails.example", Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b mw-4b uws-4b"}
		google.Break("update", 1000, protocoltest.Fault{Status: 403, List: "se-4b"})
		fails := protocoltest.Fault{Status: 500, List: "uws-4b"}
		google.Break("update", 1000, fails)
		_, end := life(t, s, google, 0)
		defer end()
		time.Sleep(12 * time.Hour)
		wantLines(t, lines, "Cannot update lists", "se-4b: the server answered status 403", "uws-4b: the server answered status 500")
		google.Repair()
		google.Break("update", 1000, fails)
		time.Sleep(12 * time.Hour)
		testkit.WantNone(t, lines.String(), "updated again")
		google.Repair()
		time.Sleep(12 * time.Hour)
		lines.Only(t, "Lists are updated again")
	})
}

// searches makes some, one after the other.
func searches(r *reporter, searcher lookup.Searcher, n int) {
	for range n {
		searcher.Search(context.Background(), []lookup.Prefix{"1234"})
	}
}

// outcomes is a searcher that ends with an error of its own.
type outcomes struct {
	err  error
	wait time.Duration
}

func (o *outcomes) Search(_ context.Context, _ []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{MinimumWait: o.wait}, o.err
}

func TestAPauseOfConfirmationsIsSaidOnceAndItsEndOnce(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		r := reporting(t, Settings{Endpoint: "http://pause.example", Protocol: protocol.DialectV5.Name})
		e := &Engine{Service: Service{settings: r.settings, Schedule: r.schedule}, reporter: r}
		running.add(e)
		defer running.remove(e)
		server := &outcomes{err: &updater.StatusError{Code: http.StatusBadGateway}}
		searcher := updater.Pace(server, r.schedule, updater.SearchRules{Backoff: updater.Strikes}, r.report)
		gauge := func() float64 {
			return testkit.Metric(t, "search_not_before_timestamp_seconds", "endpoint", "http://pause.example")
		}

		var lists []updater.ListStatus
		google := true
		failing := func() string { return failing(r.schedule.SearchHold(), google, lists, time.Now()) } // of the status
		searches(r, searcher, 2)
		testkit.WantParts(t, lines.Only(t, "A confirmation failed"), "[WARNING]", "status 502", "Suspected names pass")
		testkit.Equal(t, "status of two failures without a pause", failing(), "")
		testkit.WantNone(t, lines.String(), "paused")
		testkit.Between(t, "gauge without a pause", gauge(), 0, unixSeconds(time.Now()))
		time.Sleep(time.Second)
		searches(r, searcher, 1)
		until := time.Now().Add(5 * time.Minute)
		testkit.WantParts(t, lines.Only(t, "paused"), "[WARNING]", "paused until "+say.Time(until), "3 failures in a row", "status 502")
		testkit.Equal(t, "gauge", gauge(), unixSeconds(until))
		testkit.Equal(t, "the end in the schedule", r.schedule.SearchHold().Until.Equal(until), true)
		for range 20 { // the server is down for hours
			time.Sleep(31 * time.Minute)
			testkit.WantParts(t, failing(), "failures in a row", "status 502", "suspected names pass until one works") // as the log has said
			lists = []updater.ListStatus{{Updated: time.Now()}}
			testkit.Equal(t, "status once a list has come", failing(), "")
			google = false
			testkit.WantParts(t, failing(), "suspected names pass until one works") // a relay has its own copy of the lists
			google = true
			lists[0].Updated = time.Time{}
			searches(r, searcher, 5)
		}
		lines.Only(t, "paused")
		lines.Only(t, "A confirmation failed")
		server.err = nil
		time.Sleep(31 * time.Minute)
		searches(r, searcher, 5)
		testkit.WantParts(t, lines.Only(t, "Confirmations work again"), "[INFO]")
		testkit.Equal(t, "a pause, and the status after it", []any{r.schedule.SearchHold().Active(time.Now()), failing()}, []any{false, ""})
		testkit.Between(t, "gauge after the pause", gauge(), 0, unixSeconds(time.Now()))
		server.err = &updater.StatusError{Code: http.StatusTooManyRequests}
		searches(r, searcher, 1)
		wantLines(t, lines, "paused", "", "quota") // a refusal pauses at once
	})
}

// A relay that may not ask answers about names that it knows, and not about others, many times a
// second. That is one state, no pause, and no failure.
func TestARelayThatAnswersInPartIsTwoLines(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		r := reporting(t, Settings{Endpoint: "http://part.example", Protocol: protocol.DialectV5.Name})
		server := new(outcomes)
		searcher := updater.Pace(server, r.schedule, updater.SearchRules{Backoff: updater.Strikes}, r.report)
		for i := range 120 {
			server.err = nil
			if i%3 > 0 {
				server.err = &lookup.UnansweredError{Until: time.Now().Add(time.Minute), Reason: lookup.ErrShare}
			}
			searches(r, searcher, 1)
			time.Sleep(10 * time.Second)
		}
		_, _, inPart := r.standing()
		testkit.Equal(t, "standing", inPart, "Names are confirmed in part (the relay has no answer: the day's budget of searches is spent for this client): suspected names that the relay does not know pass. The relay's log says until when.")
		testkit.WantParts(t, lines.Only(t, "in part"), "[WARNING]", "budget of searches is spent for this client", "Suspected names that the relay does not know pass", "1m0s at most")
		hold := r.schedule.SearchHold()
		testkit.Equal(t, "failures, and a wait", []any{hold.Failures, hold.Active(time.Now())}, []any{0, false})
		server.err = nil
		for range 3 {
			time.Sleep(6 * time.Minute)
			searches(r, searcher, 1)
		}
		testkit.WantParts(t, lines.Only(t, "answers about all names again"), "[INFO]")
		_, _, inPart = r.standing()
		testkit.Equal(t, "standing afterwards", inPart, "")
		testkit.WantNone(t, lines.String(), "onfirmation")
	})
}

func TestMinimumWaitsOfSearchesAreOneState(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		r := reporting(t, Settings{Endpoint: "http://waits.example", Protocol: protocol.DialectV5.Name})
		server := &outcomes{wait: time.Minute}
		searcher := updater.Pace(server, r.schedule, updater.SearchRules{Backoff: updater.Strict}, r.report)
		for range 10 {
			searches(r, searcher, 3)
			time.Sleep(61 * time.Second)
		}
		testkit.WantParts(t, lines.Only(t, "paused"), "minimum wait of the server")
		server.wait = 0
		searches(r, searcher, 3)
		lines.Only(t, "Confirmations work again")
	})
}

// A variable brings any bytes into a Corefile, and one label that is not UTF-8 leaves no metrics to anybody.
func TestAnEndpointThatIsNotUTF8LeavesTheMetrics(t *testing.T) {
	s := Settings{Endpoint: "http://one.example/\xfc http://two.example/\xfc", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	synctest.Test(t, func(t *testing.T) {
		_, end := life(t, s, listing(t, time.Hour), time.Hour)
		defer end()
		testkit.Equal(t, "gauges of the endpoint", testkit.CountSamples(t, "endpoint_up", "url", "http://one.example/%FC"), 1)
	})
}

// badKey answers as Google does to a key that there is not.
type badKey struct{ asked []string }

func (b *badKey) RoundTrip(r *http.Request) (*http.Response, error) {
	b.asked = append(b.asked, r.URL.Path)
	const body = `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}`
	return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
}

// Google refuses a wrong key with status 400, as it does a list that it lacks. Who has just enabled the API is told of the next try.
func TestAWrongKeyIsNotTakenForAListThatIsRefused(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		google := new(badKey)
		e := started(t, Settings{Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}, "WRONG", Edge{Transport: google, FirstContact: atOnce})
		synctest.Wait()
		line := lines.Only(t, "Cannot update lists")
		testkit.WantParts(t, line, "[ERROR]", "se-4b, mw-4b", "API key not valid", "NO list is in force",
			"Check the API key, and that the Safe Browsing API is enabled for it; a new one is tried within a minute",
			"If you have just enabled the API: the next try is at "+say.Time(e.FetchHold().Until)+", in ")
		time.Sleep(12 * time.Hour)
		e.stop()
		lines.Only(t, "Cannot update lists")
		testkit.WantNone(t, lines.String(), "by itself", "refuses list")
		testkit.Equal(t, "requests", slices.Compact(google.asked), []string{"/v5/hashLists:batchGet"})
	})
}

// At the start of a machine there may be no route yet, and then a clock that no certificate agrees with.
func TestATryThatReachedTheServerIsOtherTroubleThanOneWithoutAWay(t *testing.T) {
	lines := testkit.Capture(t)
	r := reporting(t, Settings{Protocol: protocol.DialectV5.Name, Lists: "se-4b"})
	fails := func(text string, reached bool) {
		r.report(updater.Event{Kind: updater.Fetched, List: "se-4b", Err: &updater.NotSentError{Err: errors.New(text), Reached: reached}})
	}
	for range 3 {
		fails("network is unreachable", false)
		fails("no such host", false)
	}
	testkit.WantParts(t, lines.Only(t, "Cannot update lists"), "network is unreachable")
	lines.Forget()
	for range 3 {
		fails("certificate is not yet valid", true)
	}
	testkit.WantParts(t, lines.Only(t, "Cannot update lists"), "certificate is not yet valid")
}

func TestAFolderThatFailsAndRecoversIsTwoLines(t *testing.T) {
	lines := testkit.Capture(t)
	r := newReporter(Settings{DB: "/var/lib/lists", Protocol: protocol.DialectV5.Name}, func() {})
	full := fmt.Errorf("saving /var/lib/lists/se-4b.list: no space left on device")
	for range 5 {
		r.report(updater.Event{Kind: updater.StoreFailed, List: "se-4b", Err: full})
		r.report(updater.Event{Kind: updater.StoreFailed, Err: full})
		r.report(updater.Event{Kind: updater.Stored}) // a small file still finds room
	}
	testkit.WantParts(t, lines.Only(t, "Cannot write to db /var/lib/lists"), "[ERROR]", "no space left", "set db to one that is")
	r.report(updater.Event{Kind: updater.Stored, List: "se-4b"})
	testkit.WantParts(t, lines.Only(t, "can be written again"), "[INFO]")
	r.report(updater.Event{Kind: updater.Stored})
	lines.Only(t, "can be written again")
}

// The count of searches alone may wait for another process, or for a slow disk: the lists are safe then.
func TestACountThatCannotBeSavedIsNotSaidOfTheLists(t *testing.T) {
	lines := testkit.Capture(t)
	r := newReporter(Settings{DB: "/var/lib/lists", Protocol: protocol.DialectWebRisk.Name}, func() {})
	for range 3 {
		r.report(updater.Event{Kind: updater.StoreFailed, List: updater.BudgetFile, Err: errors.New("the disk has not answered within 2s")})
	}
	line := lines.Only(t, "Cannot save the count of searches in db /var/lib/lists")
	testkit.WantParts(t, line, "[ERROR]", "not answered within 2s", "counted in memory")
	testkit.WantNone(t, line, "Lists", "off")
	for range 3 {
		r.report(updater.Event{Kind: updater.StoreFailed, List: "se-4b", Err: errors.New("read-only file system")})
	}
	lines.Only(t, "Lists are in memory only")
	r.report(updater.Event{Kind: updater.Stored, List: updater.BudgetFile})
	r.report(updater.Event{Kind: updater.Stored, List: "se-4b"})
	lines.Only(t, "can be written again")
}

// Lists are saved in a directory without locks, too: only other processes are not kept from it.
func TestADirectoryWithoutLocksIsNotSaidToBeUnwritable(t *testing.T) {
	lines := testkit.Capture(t)
	db := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(db, "lock"), 0o700))
	synctest.Test(t, func(t *testing.T) {
		_, end := life(t, Settings{Endpoint: "http://locks.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", DB: db}, listing(t, time.Hour), 0)
		time.Sleep(time.Minute)
		end()
	})
	_, err := os.Stat(filepath.Join(db, "se-4b.list"))
	testkit.Must(t, err)
	testkit.WantParts(t, lines.Only(t, "locking the folder"), "[WARNING]", filepath.Join(db, "lock"), "remove it", "no other process")
	testkit.WantNone(t, lines.String(), "in memory only", "written again")
}

// "Make it writable" is no cure for a file that stands where the directory was.
func TestAFileInThePlaceOfDbIsNamedWithWhatToDo(t *testing.T) {
	lines := testkit.Capture(t)
	file := testkit.Write(t, t.TempDir(), "lists", "")
	for _, db := range []string{file, filepath.Join(file, "db")} {
		_, err := updater.OpenStore(db, updater.Origin{})
		testkit.WantError(t, err)
		newReporter(Settings{DB: db, Protocol: protocol.DialectV5.Name}, func() {}).report(updater.Event{Kind: updater.StoreFailed, Err: err})
		testkit.WantParts(t, lines.Only(t, "Cannot write to db "+db+":"), "[ERROR]", file+" is not a directory: move it away", "set db to one that is")
	}
}

// Ready must not wait for a lock that a reload or a slow disk holds for seconds.
func TestReadyNeverWaits(t *testing.T) {
	r := NewRegistry(Edge{})
	r.work.Lock()
	defer r.work.Unlock()
	var answered atomic.Bool
	go func() { r.Ready(); answered.Store(true) }()
	testkit.Until(t, "an answer while engines are started and stopped", answered.Load)
}

// The line of the start is a warning if names are not confirmed, or at any price.
func TestTheStartSaysWhatTheBudgetAllows(t *testing.T) {
	for name, test := range map[string]struct {
		budget int
		file   string
		want   []string
	}{
		"none":    {0, "", []string{"[WARNING]", "NO budget: searches cost money"}},
		"some":    {1, "", []string{"[INFO]", "budget of 1 search a day, 1 left today"}},
		"spent":   {1, `{"day":"2000-01-01","spent":{"2000-01-01":1}}`, []string{"[WARNING]", "budget of 1 search a day, 0 left today; confirmations are paused until ", " (the day's budget of 1 search is spent)"}},
		"unknown": {2, "{", []string{"[WARNING]", "budget of 2 searches a day, 0 left today; confirmations are paused until "}},
	} {
		named(t, name, func(t *testing.T, lines *testkit.Lines) {
			s := Settings{Endpoint: "http://budget.example", Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", DB: t.TempDir(), Budget: test.budget, Share: 100}
			google := listing(t, time.Hour)
			_, end := life(t, s, google, 0) // fetches the list
			end()
			if test.file != "" {
				file := testkit.Write(t, s.DB, "budget-webrisk.json", test.file)
				testkit.Must(t, os.Chtimes(file, time.Now(), time.Now())) // the bubble's time
			}
			starts(t, lines, s, google, 0, test.want...)()
		})
	}
}

func TestLinesOfTheBudgetAndOfDamageSayWhatToDo(t *testing.T) {
	r := reporting(t, Settings{Protocol: protocol.DialectWebRisk.Name})
	due := time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		event updater.Event
		want  string
	}{
		"low":     {updater.Event{Kind: updater.BudgetLow, Spent: 8, Budget: 10, Due: due}, "[WARNING] plugin/safebrowsing: 8 of the day's 10 searches are spent. When all are spent, suspected names pass until 2026-05-02T00:00:00Z. Raise budget if this happens often"},
		"spent":   {updater.Event{Kind: updater.BudgetSpent, Spent: 1, Budget: 1, Due: due}, "[WARNING] plugin/safebrowsing: The day's budget of 1 search is spent. Suspected names pass until 2026-05-02T00:00:00Z. Raise budget to confirm more names a day"},
		"unknown": {updater.Event{Kind: updater.BudgetSpent, Budget: 10, Due: due, Err: updater.ErrDamaged}, "[WARNING] plugin/safebrowsing: No names are confirmed: damaged file. Suspected names pass until 2026-05-02T00:00:00Z. To begin the day with the whole budget, stop CoreDNS and delete the file"},
		"an hour": {updater.Event{Kind: updater.BudgetPaused, Spent: 30, Budget: 100, Due: due, Hold: updater.Hold{Until: due, Budget: 100, Portion: updater.AnHour}}, "[WARNING] plugin/safebrowsing: In part: the 25 searches that one hour may take of the day's 100 are spent (30 today). Suspected names pass until 2026-05-02T00:00:00Z, for all clients. Raise budget if this happens often; find out who asks"},
		"alone":   {updater.Event{Kind: updater.BudgetPaused, Spent: 30, Budget: 100, Due: due, Hold: updater.Hold{Until: due, Budget: 100, Portion: updater.OneAlone}}, "[WARNING] plugin/safebrowsing: In part: the part of the day's 100 searches that this process may spend without Redis is spent (30 today). Suspected names pass until 2026-05-02T00:00:00Z, for all clients. Repair the way to Redis: then all of the budget can be spent"},
		"unread":  {updater.Event{Kind: updater.LoadFailed, List: updater.BudgetFile, Err: updater.ErrDamaged}, "[ERROR] plugin/safebrowsing: Cannot read what was saved: damaged file. To begin the day with the whole budget, stop CoreDNS and delete the file"},
		"a list":  {updater.Event{Kind: updater.LoadFailed, List: "se-4b", Err: updater.ErrDamaged}, "[ERROR] plugin/safebrowsing: Cannot read what was saved: damaged file. The list is fetched again"},
		"clocks":  {updater.Event{Kind: updater.LoadFailed, Err: updater.ErrDamaged}, "[ERROR] plugin/safebrowsing: Cannot read what was saved: damaged file"},
		"renewed": {updater.Event{Kind: updater.BudgetRenewed, Budget: 1, Due: due}, "[INFO] plugin/safebrowsing: Names are confirmed again, with the new day's budget of 1 search"},
	} {
		lines := testkit.Capture(t)
		r.report(test.event)
		if test.event.Kind == updater.LoadFailed { // it is read again when the folder is locked
			r.report(test.event)
		}
		_, got, _ := strings.Cut(strings.TrimSpace(lines.Only(t, "")), " [")
		testkit.Equal(t, name, "["+got, testkit.LocalTimes(test.want))
	}
}

// A disk that fails may hang as well. Whoever searches and whoever asks for the state waits for the reporter's lock.
func TestNobodyWaitsForTheDiskWithTheReporter(t *testing.T) {
	logged(t, func(t *testing.T, _ *testkit.Lines) {
		r := reporting(t, Settings{DB: "/mnt/lists", Protocol: protocol.DialectV5.Name})
		disk := make(chan struct{})
		r.inTheWay = func(string) string { <-disk; return "" }
		go r.report(updater.Event{Kind: updater.StoreFailed, List: "se-4b", Err: errors.New("input/output error")})
		synctest.Wait()
		if !r.mu.TryLock() {
			t.Error("the lock waits for the disk")
		} else {
			r.mu.Unlock()
		}
		close(disk)
		synctest.Wait()
	})
}
