package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// byHost is a transport to servers.
type byHost map[string]http.RoundTripper

func (h byHost) RoundTrip(r *http.Request) (*http.Response, error) { return h[r.URL.Host].RoundTrip(r) }

// While a relay is down for a day, however often it is tried, there is one line when it is left and one when it answers
// again; updates and confirmations have no trouble. A gauge for each relay says which of them fails. A reload makes an
// engine with the same labels, which may not have seen what the one before has.
func TestARelayThatIsLeftIsTwoLinesAndAGauge(t *testing.T) {
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		first, second := protocoltest.New(t), protocoltest.New(t)
		for _, relay := range []*protocoltest.Server{first, second} {
			relay.OneOfMany()
			relay.SetMinimumWait("", 20*time.Minute)
			relay.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		}
		way := &wire{server: first}
		r := ForTests{NewRegistry(Edge{Transport: byHost{"first.internal": way, "second.internal": second}})}
		s := Settings{Endpoint: "http://first.internal http://second.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
		want := func(when string, first, second float64) {
			t.Helper()
			for url, up := range map[string]float64{"http://first.internal": first, "http://second.internal": second} {
				testkit.Equal(t, when+": endpoint_up of "+url, testkit.Metric(t, "endpoint_up", "url", url), up)
			}
		}
		before, end := acquire(t, r, s, 0)
		want("at the start", 1, 1)
		time.Sleep(time.Hour)
		way.cut.Store(true)
		today := time.Now().Format(time.DateOnly)
		time.Sleep(24 * time.Hour)
		want("the first one is down", 0, 1)
		testkit.Between(t, "updates by the second relay in a day", len(second.Requests("update")), 70, 80)
		way.cut.Store(false)
		time.Sleep(25 * time.Hour)
		want("it is back", 1, 1)
		testkit.WantParts(t, lines.Only(t, "fails"), "[WARNING]", "http://first.internal fails: ", "network is unreachable. http://second.internal is asked in its place; http://first.internal is tried again, not before "+today)
		testkit.WantParts(t, lines.Only(t, "answers again"), "[INFO]", "http://first.internal answers again")
		testkit.WantNone(t, lines.String(), "[ERROR]")
		s.Cache = 7
		_, endOther := acquire(t, r, s, 0)
		before.reporter.endpointChanged(protocol.EndpointEvent{Endpoint: "http://first.internal", Err: errors.New("connection refused")})
		want("the engine that ends has seen a failure", 0, 1)
		end()
		want("the engine that continues has not", 1, 1)
		endOther()
		want("both have ended", 0, 0) // there is no gauge
		second.ClientLostState()
		s.Endpoint = "http://second.internal"
		_, end = acquire(t, r, s, 0)
		defer end()
		want("a single endpoint has no gauge", 0, 0)
	})
}

// wire is a transport to a server, which can be cut.
type wire struct {
	server http.RoundTripper
	cut    atomic.Bool
}

var errCut = errors.New("network is unreachable")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		httptrace.ContextClientTrace(r.Context()).GetConn(r.URL.Host)
		return nil, errCut
	}
	return w.server.RoundTrip(r)
}

func (w *wire) Reach(context.Context, *url.URL) error {
	if w.cut.Load() {
		return errCut
	}
	return nil
}

// Without a network nothing is sent, and so no client has spent anything.
func TestASearchWithoutANetworkTakesFromNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{server: listing(t, time.Hour)}
		s := Settings{Endpoint: "http://cut.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", APIKey: "K", Budget: 20, Share: 10}
		e := started(t, s, "K", Edge{Transport: w, FirstContact: atOnce})
		defer e.stop()
		time.Sleep(time.Minute)
		w.cut.Store(true)
		for range 10 {
			_, n, err := e.Confirm(t.Context(), []lookup.Prefix{lookup.Prefix([]byte{1, 2, 3, 4})})
			testkit.Must(t, err)
			testkit.Equal(t, "searches that count as sent", n, 0)
			time.Sleep(5 * time.Minute)
		}
		testkit.Equal(t, "searches that were taken, and none was sent", e.Shares.Taken(lookup.Program, time.Now()), 0)
	})
}

// Without a network the log says once that nothing protects. The lists are there soon after the network.
func TestAServerWithoutANetworkSaysThatNothingProtects(t *testing.T) {
	s := Settings{Endpoint: "http://away.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	logged(t, func(t *testing.T, lines *testkit.Lines) {
		w := &wire{server: listing(t, 30*time.Minute)}
		w.cut.Store(true)
		e := started(t, s, "key", Edge{Transport: w, FirstContact: atOnce})
		defer e.stop()
		time.Sleep(2*time.Hour + time.Second)
		line := lines.Only(t, "Cannot update lists")
		testkit.WantParts(t, line, "[ERROR]", "se-4b", "network is unreachable", "NO list is in force: Safe Browsing blocks nothing until the first update, which comes soon after the server can be reached", "Next try not before")
		testkit.WantNone(t, line, "stay in force")
		w.cut.Store(false)
		time.Sleep(16 * time.Second)
		lines.Only(t, "List se-4b now has 1 entry")
		lines.Only(t, "Lists are updated again")
		// With a list it stays, and the next line says so.
		w.cut.Store(true)
		time.Sleep(31 * time.Minute)
		wantLines(t, lines, "Cannot update lists", "NO list is in force", "The lists in force stay in force. Next try not before")
	})
}

// threaten puts n names into list se-4b, which are threats.
func threaten(google *protocoltest.Server, n int) {
	var entries [][]byte
	for i := range n {
		expression := strings.TrimSuffix(threatened(i), ".") + "/"
		hash := lookup.HashExpression(expression)
		entries = append(entries, hash[:4])
		google.AddThreat(expression, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	google.Publish("se-4b", entries)
}

// threatened returns the names of threaten.
func threatened(i int) string { return fmt.Sprintf("evil%d.example.", i) }

// A wait for a budget, a share or a key ends when a reload of the Corefile raises or replaces it.
func TestAReloadEndsTheWaitForWhatItRaises(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for name, test := range map[string]struct {
			budget, share int
			refuse        bool
		}{"the budget": {1, 100, false}, "the share": {100, 1, false}, "the key": {1000, 100, true}} {
			named(t, fmt.Sprintf("%s, db %t", name, stored), func(t *testing.T, _ *testkit.Lines) {
				google := protocoltest.New(t)
				google.SetMinimumWait("", time.Hour)
				threaten(google, 99)
				s := Settings{Endpoint: "http://raised.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", Budget: test.budget, Share: test.share, APIKey: "OLD"}
				if stored {
					s.DB = t.TempDir()
				}
				registry := ForTests{NewRegistry(Edge{Transport: google})}
				first, release := acquire(t, registry, s, 0)
				time.Sleep(time.Second)
				if test.refuse {
					google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
				}
				refused := 0
				for decide(first, threatened(refused)).Verdict == lookup.Unsafe {
					refused++
				}
				testkit.Equal(t, refused, decide(first, threatened(refused)).Verdict, lookup.Unsure)
				s.Budget, s.Share = 1000, 100
				if test.refuse {
					s.APIKey = "NEW"
				}
				second, end := acquire(t, registry, s, 0)
				defer end()
				release()
				time.Sleep(time.Second)
				testkit.Equal(t, "after the reload", decide(second, threatened(refused)).Verdict, lookup.Unsafe)
			})
		}
	}
}

// Answers are the server's, and live on when an engine has other settings after a reload: to ask again would cost a search
// of the budget, and what is cached is asked about once ("Caching"). About other lists they say nothing.
func TestAnswersOutliveAReloadOfOtherSettings(t *testing.T) {
	for _, dialect := range protocol.Dialects() {
		for name, test := range map[string]struct {
			change   func(*Settings)
			searches int
		}{
			"the budget":     {func(s *Settings) { s.Budget = 100 }, 1},
			"a small cache":  {func(s *Settings) { s.Cache = 1 }, 1},
			"the lists":      {func(s *Settings) { s.Lists = "mw-4b" + " " + s.Lists }, 2},
			"the credential": {func(s *Settings) { s.APIKey = "NEW" }, 2},
		} {
			named(t, dialect.Name+", "+name, func(t *testing.T, _ *testkit.Lines) {
				google := server(t)
				google.AddThreat("evil.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
				google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}})
				s := Settings{Endpoint: "http://other.example", Protocol: dialect.Name, Lists: "se-4b", APIKey: "OLD", DB: t.TempDir()}
				registry := ForTests{NewRegistry(Edge{Transport: google})}
				first, release := acquire(t, registry, s, 0)
				time.Sleep(time.Minute)
				testkit.Equal(t, "before the reload", decide(first, "evil.example.com.").Verdict, lookup.Unsafe)
				test.change(&s)
				if test.searches > 1 {
					google.ClientStarted() // for the referee it is one
				}
				second, end := acquire(t, registry, s, 0)
				defer end()
				release()
				time.Sleep(time.Minute)
				testkit.Equal(t, "after the reload", decide(second, "evil.example.com.").Verdict, lookup.Unsafe)
				testkit.Equal(t, "searches", len(google.Requests("search")), test.searches)
			})
		}
	}
}

// A reload that moves a key from the Corefile into a file is no start for the server, and loses no answer and no wait.
func TestAKeyThatMovesIntoAFileIsTheSameKey(t *testing.T) {
	for _, dialect := range protocol.Dialects() {
		for name, db := range map[string]string{"a directory": t.TempDir(), "db off": ""} {
			t.Run(dialect.Name+", "+name, func(t *testing.T) {
				file := testkit.Write(t, t.TempDir(), "key", "K")
				synctest.Test(t, func(t *testing.T) {
					google := listing(t, time.Hour)
					threaten(google, 2)
					google.Publish("mw-4b", [][]byte{{1, 2, 3, 4}})
					s := Settings{Endpoint: "http://moved.example", Protocol: dialect.Name, Lists: "se-4b mw-4b", APIKey: "K"}
					if db != "" {
						s.DB = filepath.Join(db, dialect.Name)
					}
					registry := NewRegistry(Edge{Transport: google, FirstContact: func() time.Duration { return 30 * time.Second }})
					first, release, err := registry.Acquire(s, "K")
					testkit.Must(t, err)
					time.Sleep(time.Minute)
					testkit.Equal(t, "before the reload", decide(first, threatened(0)).Verdict, lookup.Unsafe)
					updates, before := len(google.Requests("update")), s.Identity()
					s.APIKey, s.KeyFile, s.Lists = "", file, "mw-4b se-4b"
					_, drop, err := registry.Acquire(s, "K")
					testkit.Must(t, err)
					drop() // a reload that fails comes first
					second, end, err := registry.Acquire(s, "K")
					testkit.Must(t, err)
					defer end()
					release()
					d := decide(second, threatened(0))
					testkit.Equal(t, "what is known, right after the reload", []any{d.Verdict, d.By}, []any{lookup.Unsafe, lookup.ByCache})
					testkit.Equal(t, "another name, right after the reload", decide(second, threatened(1)).Verdict, lookup.Unsafe)
					time.Sleep(2 * time.Minute)
					testkit.Equal(t, "no lists are kept for nobody", registry.past.schedules[before].Over(), true)
					testkit.Equal(t, "updates", len(google.Requests("update")), updates)
					testkit.Equal(t, "searches", len(google.Requests("search")), 2)
				})
			})
		}
	}
}

// A fetch that such a reload cuts off is no failure, after which no list would come for a quarter of an hour.
func TestAKeyThatMovesDuringAFetchCausesNoBackoff(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "key", "K")
	synctest.Test(t, func(t *testing.T) {
		s := Settings{Endpoint: "http://moved.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b", APIKey: "K"}
		google := listing(t, time.Hour)
		google.Break("update", 1, protocoltest.Fault{Delay: 20 * time.Second})
		r := ForTests{NewRegistry(Edge{Transport: google})}
		_, release := acquire(t, r, s, 0)
		time.Sleep(5 * time.Second)
		s.APIKey, s.KeyFile = "", file
		next, end, err := r.Acquire(s, "K")
		testkit.Must(t, err)
		defer end()
		release()
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "lists after two minutes", len(next.Lists()), 1)
	})
}

// decide returns the decision about a name that a DNS client asks for.
func decide(e *Engine, qname string) lookup.Decision {
	d, candidates := e.Checker.Check(lookup.FromQname(qname))
	if candidates == nil {
		return d
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return e.Checker.Confirm(candidates, lookup.AdmitBy(nil, e.Shares, netip.MustParseAddr("192.0.2.1"))).Wait(ctx)
}
