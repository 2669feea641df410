package relay

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// searchOf asks the relay about an expression.
func (w *world) searchOf(expression string) *httptest.ResponseRecorder {
	return ask(w.t, w.relay, "GET", "/v5/hashes:search?hashPrefixes="+param(prefixOf(expression, 4)))
}

// After a start a relay by any protocol but version 5 must not search before its first contact. Its
// clients wait just as long with that name, and it is no failure: three would pause them for 5
// minutes.
func TestRetryAfterIsTheTimeUntilTheFirstContact(t *testing.T) {
	for _, d := range protocol.Dialects()[1:] {
		t.Run(d.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Settings.Protocol, w.cfg.Settings.DB = d.Name, t.TempDir()
				w.start()
				time.Sleep(time.Minute)
				synctest.Wait()
				w.relay.Close()
				w.google.ClientStarted()
				w.cfg.Edge.FirstContact = func() time.Duration { return 40 * time.Second }
				w.start() // with the lists on disk
				defer w.relay.Close()
				synctest.Wait()
				c := w.replica(1)
				defer c.close()
				synctest.Wait()
				time.Sleep(10 * time.Second)
				if got := w.searchOf("evil.example/"); got.Code != 503 || got.Header().Get("Retry-After") != "30" {
					t.Errorf("10 seconds after the start: status %d, Retry-After %q, want 503 and 30", got.Code, got.Header().Get("Retry-After"))
				}
				for range 20 {
					c.decide("evil.example.")
					time.Sleep(time.Second)
				}
				if hold := c.SearchHold(); hold.Failures != 0 || hold.Active(time.Now()) {
					t.Errorf("the client has %d failures and waits for %s, want neither", hold.Failures, time.Until(hold.Until))
				}
				time.Sleep(10 * time.Second)
				if d := c.decide("evil.example."); d.Verdict != lookup.Unsafe {
					t.Errorf("after the first contact: %+v", d)
				}
			})
		})
	}
}

// The first search of Web Risk is noted as failed until it is answered. That is no wait for
// clients: those that ask meanwhile come back after a second.
func TestRetryAfterIsShortWhileASearchIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		w.threaten("evil.example/", "worse.example/")
		w.start()
		defer w.relay.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.google.Break("search", 1, protocoltest.Fault{Delay: 3 * time.Second})
		first := make(chan int, 1)
		go func() { first <- w.searchOf("evil.example/").Code }()
		time.Sleep(time.Second)
		if got := w.searchOf("worse.example/"); got.Code != 503 || got.Header().Get("Retry-After") != "1" {
			t.Errorf("while a search is under way: status %d, Retry-After %q, want 503 and 1", got.Code, got.Header().Get("Retry-After"))
		}
		if got := <-first; got != 200 {
			t.Errorf("the search under way: status %d, want 200", got)
		}
		if got := w.searchOf("worse.example/"); got.Code != 200 {
			t.Errorf("after it: status %d, %s, want 200", got.Code, got.Body)
		}
	})
}

// After a failure Retry-After is the relay's own back-off, but a minute at most, whatever the
// protocol: by then the relay may know the answer.
func TestRetryAfterIsTheBackoffAfterAFailureAndAMinuteAtMost(t *testing.T) {
	for _, d := range protocol.Dialects() {
		t.Run(d.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Settings.Protocol = d.Name
				w.start()
				defer w.relay.Close()
				time.Sleep(time.Minute)
				synctest.Wait()
				w.google.Break("search", 1, protocoltest.Fault{Status: 429})
				for range 2 { // the failure itself, and the wait after it
					got := w.searchOf("evil.example/")
					left := time.Until(w.relay.engine.SearchHold().Until)
					if got.Code != 503 || left < 10*time.Minute || got.Header().Get("Retry-After") != "60" {
						t.Errorf("status %d, Retry-After %q, the relay waits for %s", got.Code, got.Header().Get("Retry-After"), left)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}
