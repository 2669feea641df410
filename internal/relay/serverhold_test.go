package relay

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// searchOf asks the relay about expressions.
func (w *world) searchOf(expressions ...string) *httptest.ResponseRecorder {
	return ask(w.t, w.relay, "GET", searchRequest(expressions...))
}

// mustComeBack fails unless a client is told to ask again after so many seconds.
func mustComeBack(t *testing.T, got *httptest.ResponseRecorder, seconds string) {
	t.Helper()
	if got.Code != 503 || got.Header().Get("Retry-After") != seconds {
		t.Errorf("status %d, Retry-After %q, want 503 and %s: %s", got.Code, got.Header().Get("Retry-After"), seconds, got.Body)
	}
}

// After a start a relay by any protocol but version 5 must not search before its first contact. Its clients wait just as long with
// that name, and it is no failure: three would pause them for 5 minutes.
func TestRetryAfterIsTheTimeUntilTheFirstContact(t *testing.T) {
	for _, d := range protocol.Dialects()[1:] {
		runWorld(t, d.Name, func(t *testing.T, w *world) {
			w.cfg.Settings.Protocol, w.cfg.Settings.DB = d.Name, t.TempDir()
			w.begin()
			w.relay.Close()
			w.google.ClientStarted()
			w.cfg.Edge.FirstContact = func() time.Duration { return 40 * time.Second }
			w.start() // with the lists on disk
			c := w.replica(1)
			time.Sleep(10 * time.Second)
			mustComeBack(t, w.searchOf("evil.example/"), "30")
			for range 20 {
				c.decide("evil.example.")
				time.Sleep(time.Second)
			}
			mustNotWait(t, "the client", c.SearchHold())
			time.Sleep(10 * time.Second)
			c.mustBe(t, lookup.Unsafe, "evil.example.")
		})
	}
}

// The first search of Web Risk is noted as failed until it is answered. That is no wait for
// clients: those that ask meanwhile come back after a second.
func TestRetryAfterIsShortWhileASearchIsUnderWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		w.threaten("evil.example/", "worse.example/")
		w.begin()
		w.google.Break("search", 1, protocoltest.Fault{Delay: 3 * time.Second})
		first := make(chan int, 1)
		go func() { first <- w.searchOf("evil.example/").Code }()
		time.Sleep(time.Second)
		mustComeBack(t, w.searchOf("worse.example/"), "1")
		if got, after := <-first, w.searchOf("worse.example/").Code; got != 200 || after != 200 {
			t.Errorf("the search under way: status %d, after it %d, want 200", got, after)
		}
	})
}

// After a failure Retry-After is the relay's own back-off, but a minute at most, whatever the
// protocol: by then the relay may know the answer.
func TestRetryAfterIsTheBackoffAfterAFailureAndAMinuteAtMost(t *testing.T) {
	for _, d := range protocol.Dialects() {
		runWorld(t, d.Name, func(t *testing.T, w *world) {
			w.cfg.Settings.Protocol = d.Name
			w.begin()
			w.google.Break("search", 1, protocoltest.Fault{Status: 429})
			for range 2 { // the failure itself, and the wait after it
				mustComeBack(t, w.searchOf("evil.example/"), "60")
				if left := time.Until(w.relay.engine.SearchHold().Until); left < 10*time.Minute {
					t.Errorf("the relay waits for %s", left)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// All clients share the relay's budget. A client asks about the name again after a minute,
// and about others at once: the budget may be raised, and another client may have asked.
func TestClientsWaitForTheRelaysBudget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten("evil.example/", "worse.example/")
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 1, 100
		w.start()
		first, second := w.replica(1), w.replica(2)
		first.mustBe(t, lookup.Unsafe, "evil.example.")
		second.mustBe(t, lookup.Unsafe, "evil.example.")
		second.mustBe(t, lookup.Unsure, "worse.example.")
		mustNotWait(t, "the client", second.SearchHold())
		searches := func() int {
			return len(slices.DeleteFunc(second.wire.asked(), func(p string) bool { return !strings.Contains(p, "search") }))
		}
		asked := searches()
		for _, step := range []struct {
			after time.Duration
			asks  int
		}{{0, 0}, {time.Minute - time.Second, 0}, {time.Second, 1}, {time.Second, 0}} {
			time.Sleep(step.after)
			if d := second.decide("worse.example."); d.Verdict != lookup.Unsure || d.By != lookup.ByBudget {
				t.Errorf("after %s: %+v", step.after, d)
			}
			if asked += step.asks; searches() != asked {
				t.Errorf("after %s the client has asked %d times in all, want %d", step.after, searches(), asked)
			}
		}
	})
}

func TestAClientInModeRealtimeHasItsListsAlthoughTheRelayCannotDoMore(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(0) // a whole day follows
		w := newWorld(t)
		w.start()
		c := w.replicaIn(lookup.RealTime, 1, atOnce)
		time.Sleep(time.Second)
		if n := c.entries(); n != 1 {
			t.Errorf("Expected the lists that the relay has at once, got %d entries", n)
		}
		c.mustBe(t, lookup.Unsafe, "evil.example.")
		testkit.WantParts(t, lines.Only(t, "Client 10.0.0.1 asks for list"), "[WARNING]", `list "gc-32b", and this relay has mw-4b, se-4b only`, "start the relay with -realtime, or write mode local there")
		testkit.WantParts(t, lines.Only(t, "refuses list gc-32b"), "[ERROR]", "start the relay with -realtime, or write mode local")
		time.Sleep(20 * time.Hour)
		lines.Only(t, "Client 10.0.0.1 asks for list") // once a day
	})
}

func TestModeNostorageBehindARelayThatCannotIsSaidByBoth(t *testing.T) {
	lines := testkit.Capture(t)
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		local := w.replica(2)
		c := w.replicaIn(lookup.NoStorage, 1, atOnce)
		time.Sleep(time.Second)
		testkit.WantParts(t, lines.Only(t, "does not have list gc-32b"), "[WARNING]", "http://relay1.internal", "it confirms only what its own lists hold, and so mode nostorage blocks no more than mode local", "Start the relay with -realtime, or write mode local")
		for i := range manyUnlisted {
			local.decide(hostName(i))
		}
		if got := lines.About("are in no list"); len(got) != 0 {
			t.Errorf("For a client in mode local the relay says %q", got)
		}
		for i := range 3 * manyUnlisted {
			c.decide(fmt.Sprintf("n%d.example.", i))
			time.Sleep(time.Second)
		}
		testkit.WantParts(t, lines.Only(t, "are in no list"), "[WARNING]", "the last ones of 10.0.0.1", "without -realtime this relay confirms only what its own lists hold")
	})
}

// Limits know a client with a key by another address, which nobody has.
func TestTheLogNamesTheAddressOfAClientWithAKey(t *testing.T) {
	lines := testkit.Capture(t)
	key := testkit.Write(t, t.TempDir(), "keys", "CLIENT\n")
	request := httptest.NewRequest("GET", "/v5/hashList/other-4b?key=CLIENT", nil)
	request.RemoteAddr = "10.9.8.7:4711"
	inWorld(t, func(t *testing.T, w *world) {
		w.cfg.ClientKeyFile = key
		w.start()
		w.relay.ServeHTTP(httptest.NewRecorder(), request)
	})
	lines.Only(t, "Client 10.9.8.7 asks for list")
	var named netip.Addr
	h := &handler{shareSpent: func(_, address netip.Addr) { named = address }}
	refuses := func(int) (int, func(), error) { return 0, nil, lookup.ErrShare }
	if _, _, err := h.told(request, pseudonym([]byte("CLIENT")), refuses)(1); err != lookup.ErrShare || named.String() != "10.9.8.7" {
		t.Errorf("Expected the address of the client, got %s, %v", named, err)
	}
}

// The names of its lists are what a doctor asks for, who is called when something is new.
func TestARelayWithoutItsFirstListsDoesNotSayThatItHasNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cfg.Edge.FirstContact = func() time.Duration { return 40 * time.Second }
		w.start()
		ask := func(path string) *httptest.ResponseRecorder {
			synctest.Wait()
			return recorded(w.relay, httptest.NewRequest("GET", path, nil))
		}
		for path, words := range map[string]string{
			"/v5/hashes:search?hashPrefixes=AAAAAA": "the relay has no lists yet",
			"/v5/hashLists":                         "the relay has no lists yet: it fetches them within a minute of its start",
		} {
			got := ask(path)
			mustComeBack(t, got, "60")
			testkit.WantParts(t, got.Body.String(), words)
		}
		time.Sleep(time.Minute)
		if got := ask("/v5/hashLists"); got.Code != 200 || !strings.Contains(got.Body.String(), "se-4b") {
			t.Errorf("Expected the lists, got %d %s", got.Code, got.Body)
		}
	})
}

// A client that has the lists asks about names at once: the first contact may end a moment later.
func TestARelayThatHandsItsListsOnAnswersSearches(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.begin()
		h := w.relay.handler
		h.first = make(chan struct{}) // as it was when the lists were published
		if got := w.searchOf("clean.example/").Code; got != 200 {
			t.Errorf("Expected an answer by the lists, got %d", got)
		}
		h.configured = append(h.configured, "uwsa-4b") // it may still come
		mustComeBack(t, w.searchOf("clean.example/"), "60")
	})
}

// A list that is named with -lists and could not be fetched is not one that the operator has to name.
func TestAListThatIsNotFetchedYetIsNotOneThatIsNotNamed(t *testing.T) {
	lines := testkit.Capture(t)
	h := &handler{configured: []string{"mw-4b", "se-4b"}, lists: newLists(t, ""), first: make(chan struct{})}
	publish(t, h.lists, "se-4b", setOf(t, "aaaa"))
	close(h.first) // the first contact has ended, without mw-4b
	_, bad := h.list(httptest.NewRequest("GET", "/v5/hashList/mw-4b", nil), "mw-4b", nil, query{})
	if bad == nil || bad.code != 404 || bad.lists != "se-4b" || !strings.Contains(bad.message, "has not fetched list mw-4b yet") {
		t.Errorf("Expected a refusal that says so, got %+v", bad)
	}
	if got := lines.About("asks for list"); len(got) != 0 {
		t.Errorf("Expected no advice, got %q", got)
	}
}
