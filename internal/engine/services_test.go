package engine

import (
	"crypto/sha256"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// server is one that lists evil.example.com.
func server(t *testing.T) *protocoltest.Server {
	google := listing(t, time.Hour)
	hash := sha256.Sum256([]byte("evil.example.com/"))
	google.Publish("se-4b", [][]byte{hash[:4]})
	return google
}

// acquire starts an engine whose first contact is after a while.
func acquire(t *testing.T, r ForTests, s Settings, contact time.Duration) (e *Engine, release func()) {
	t.Helper()
	r.SetFirstContact(func() time.Duration { return contact })
	e, release, err := r.Acquire(s, s.APIKey)
	testkit.Must(t, err)
	synctest.Wait()
	return e, release
}

// suspects reports whether the lists of an engine have evil.example.com.
func suspects(e *Engine) bool {
	_, candidates := e.Checker.Check(lookup.FromQname("evil.example.com."))
	return candidates != nil
}

// Google has a server for each service: a move to the other service is one to another address.
func TestListsOfGoogleServeItsOtherServiceUntilThatHasDelivered(t *testing.T) {
	for _, from := range protocol.Dialects() {
		for _, to := range protocol.Dialects() {
			if from == to {
				continue
			}
			for _, way := range []struct {
				name             string
				restart, memory  bool
				otherKey, unlike bool // unlike: the lists are from another server
			}{
				{name: "restart", restart: true},
				{name: "restart, other key", restart: true, otherKey: true},
				{name: "reload"},
				{name: "reload, db off", memory: true},
				{name: "reload, db off, other key", memory: true, otherKey: true},
				{name: "reload, db off, other server", memory: true, unlike: true},
				{name: "restart, other server", restart: true, unlike: true},
			} {
				dir := t.TempDir()
				named(t, from.Name+" to "+to.Name+", "+way.name, func(t *testing.T, _ *testkit.Lines) {
					google := server(t)
					s := Settings{APIKey: "ONE", Protocol: from.Name, Lists: "se-4b", DB: dir}
					if way.memory {
						s.DB = ""
					}
					r := ForTests{NewRegistry(Edge{Transport: google})}
					first, release := acquire(t, r, s, 0)
					testkit.Equal(t, "lists in force", suspects(first), true)
					if way.restart {
						release()
						r = ForTests{NewRegistry(Edge{Transport: google})}
					}
					s.Protocol = to.Name
					if way.otherKey {
						s.APIKey = "TWO"
					}
					if way.unlike {
						s.Endpoint = "http://other.example"
					}
					second, releaseSecond := acquire(t, r, s, time.Hour)
					testkit.Equal(t, "lists in force", suspects(second), !way.unlike)
					release()
					synctest.Wait()
					testkit.Equal(t, "lists in force after the end of the first engine", suspects(second), !way.unlike)
					releaseSecond()
				})
			}
		}
	}
}

// pair are the settings of two engines, and whether one waits for the other.
type pair struct {
	first, second Settings
	waits         bool
}

// A server's rules hold for a key at one address. The other service of Google is asked at once.
func TestEnginesWaitForEachOtherAtOneAddressOnly(t *testing.T) {
	const own = "http://one.example"
	v5, risk := protocol.DialectV5.Name, protocol.DialectWebRisk.Name
	for name, tc := range map[string]pair{
		"both services of Google":                      {Settings{Protocol: v5}, Settings{Protocol: risk}, false},
		"both services of Google, the other way round": {Settings{Protocol: risk}, Settings{Protocol: v5}, false},
		"one server by two protocols":                  {Settings{Protocol: v5, Endpoint: own}, Settings{Protocol: risk, Endpoint: own}, true},
		"one server by one protocol, other settings":   {Settings{Protocol: risk}, Settings{Protocol: risk, Cache: 7}, true},
	} {
		t.Run(name, func(t *testing.T) { tc.try(t) })
	}
}

func (tc pair) try(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		google := server(t)
		r := ForTests{NewRegistry(Edge{Transport: google})}
		tc.first.APIKey, tc.first.Lists = "KEY", "se-4b"
		tc.second.APIKey, tc.second.Lists = "KEY", "se-4b"
		_, releaseFirst := acquire(t, r, tc.first, time.Minute)
		_, releaseSecond := acquire(t, r, tc.second, time.Minute)
		defer releaseSecond()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		want := 2
		if tc.waits {
			want = 1
		}
		testkit.Equal(t, "updates", len(google.Requests("update")), want)
		releaseFirst()
	})
}

// An engine that has ended keeps no lists in memory. It must not hide one that has some.
func TestListsComeFromAnEngineThatHasSome(t *testing.T) {
	v5 := protocol.DialectV5.Name
	one := Settings{APIKey: "ONE", Protocol: v5}
	for name, keys := range map[string]struct{ ended, asks Settings }{
		"the same key, by another protocol":                  {Settings{APIKey: "ONE", Protocol: protocol.Dialects()[1].Name}, one},
		"another key":                                        {one, Settings{APIKey: "THREE", Protocol: v5}},
		"the same key again, as when a reload is taken back": {one, one},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order of a map is random
				synctest.Test(t, func(t *testing.T) {
					r := ForTests{NewRegistry(Edge{Transport: server(t)})}
					keys.ended.Lists, keys.asks.Lists = "se-4b", "se-4b"
					_, release := acquire(t, r, keys.ended, 0)
					release()
					_, release = acquire(t, r, Settings{APIKey: "TWO", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}, 0)
					defer release()
					e, release := acquire(t, r, keys.asks, time.Hour)
					defer release()
					testkit.Equal(t, "the lists of the engine that runs", suspects(e), true)
				})
			}
		})
	}
}

// A reload that names another folder takes the clocks along. A restart soon after it must not have these only.
func TestTheFolderThatAReloadNamesHasTheListsAtOnce(t *testing.T) {
	for name, before := range map[string]string{"instead of another one": t.TempDir(), "instead of none": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				google := server(t)
				r := ForTests{NewRegistry(Edge{Transport: google})}
				s := Settings{APIKey: "ONE", Protocol: protocol.DialectV5.Name, Lists: "se-4b", DB: before}
				_, release := acquire(t, r, s, 0)
				s.DB = dir
				_, end := acquire(t, r, s, time.Hour)
				release()
				synctest.Wait()
				end()
				e, end := acquire(t, ForTests{NewRegistry(Edge{Transport: google})}, s, time.Hour)
				defer end()
				testkit.Equal(t, "the list of before, and ready, after a restart", []bool{suspects(e), e.Ready()}, []bool{true, true})
			})
		})
	}
}

// The server knows versions of lists that came with another key, but not those of another service.
func TestTheFirstRequestHasTheVersionsThatTheServerKnows(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second *protocol.Dialect
		versions      int
	}{
		"the same protocol": {protocol.DialectWebRisk, protocol.DialectWebRisk, 1},
		"another service":   {protocol.DialectV5, protocol.DialectWebRisk, 0},
	} {
		named(t, name, func(t *testing.T, _ *testkit.Lines) {
			google := server(t)
			r := ForTests{NewRegistry(Edge{Transport: google})}
			_, release := acquire(t, r, Settings{APIKey: "ONE", Protocol: tc.first.Name, Lists: "se-4b"}, 0)
			defer release()
			_, release = acquire(t, r, Settings{APIKey: "TWO", Protocol: tc.second.Name, Lists: "se-4b"}, 0)
			defer release()
			all := google.Requests("update")
			testkit.Equal(t, "requests, and versions in the last", [2]int{len(all), len(all[len(all)-1].Versions)}, [2]int{2, tc.versions})
		})
	}
}

// Without db a reload hands the schedule over, with the back-off of the token before.
func TestANewTokenAtAReloadEndsTheBackoffWithoutADB(t *testing.T) {
	for key, want := range map[string]int{"OLD": 1, "NEW": 2} {
		synctest.Test(t, func(t *testing.T) {
			google := server(t)
			google.SetToken("NEW")
			r := ForTests{NewRegistry(Edge{Transport: google, FirstContact: atOnce})}
			s := Settings{Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", KeyFile: filepath.Join(t.TempDir(), "token"), Token: true}
			_, release, err := r.Acquire(s, "OLD")
			testkit.Must(t, err)
			synctest.Wait()
			s.Cache = 7
			_, releaseNext, err := r.Acquire(s, key)
			testkit.Must(t, err)
			release()
			synctest.Wait()
			testkit.Equal(t, key+": updates", len(google.Requests("update")), want)
			releaseNext()
		})
	}
}

// The page says which of several processes with one folder fetches, which lists are in force, and, without a budget, too, that
// searches cost money.
func TestServiceTellsWhoFetchesAndWhatIsInForce(t *testing.T) {
	testkit.Capture(t)
	for _, d := range []*protocol.Dialect{protocol.DialectV5, protocol.DialectWebRisk} {
		s := Settings{Endpoint: "http://service.example", Protocol: d.Name, Lists: "se-4b mw-4b uws-4b", DB: "/db"}
		client, err := s.Client("K", new(lookup.Database), nil)
		testkit.Must(t, err)
		r := reporting(t, s)
		e := &Engine{Service: Service{settings: s, client: client, Schedule: r.schedule, standing: r.standing}, reporter: r}
		now := time.Now()
		r.report(updater.Event{Kind: updater.Loaded, List: "se-4b", Entries: 7, Updated: now, Due: now.Add(time.Hour)})
		r.report(updater.Event{Kind: updater.Loaded, List: "mw-4b", Updated: now}) // empty, and in force
		for kind, follows := range map[updater.Kind]bool{updater.LockBusy: true, updater.Started: false} {
			r.report(updater.Event{Kind: kind})
			got := e.Standing(time.Now())
			testkit.Equal(t, kind, []any{got.Follows, got.Title, got.Folder, got.Paid, got.Cost()}, []any{follows, d.Title, "/db", d.Paid, ""})
			l := got.Lists
			testkit.Equal(t, "lists that are missing", []bool{l[0].Missing(), l[1].Missing(), l[2].Missing()}, []bool{false, false, true})
			testkit.Equal(t, "lists, and entries and wait of the first", []any{len(l), l[0].Entries, l[0].NotBefore.After(now)}, []any{3, 7, true})
		}
	}
}

func TestTheOriginOfSeveralEndpointsIsTheirSet(t *testing.T) {
	of := func(endpoints string) Settings { return Settings{Endpoint: endpoints} }
	ab, ba := of("http://a http://b"), of("http://b http://a")
	testkit.Equal(t, "identity in another order", ab.Identity(), ba.Identity())
	testkit.Equal(t, "origin in another order", ab.Origin("K").Name+ab.Origin("K").Asker, ba.Origin("K").Name+ba.Origin("K").Asker)
	testkit.Equal(t, "the order of the address", []any{ab.Address(), ba.Address()}, []any{"http://a http://b", "http://b http://a"})
	for _, tc := range []struct {
		now, before string
		want        bool
	}{
		{"http://a http://b", "http://a", true},
		{"http://a", "http://a http://b", true},
		{"http://a http://b", "http://b http://c", true},
		{"http://a http://b", "http://c", false},
		{"http://a http://b", "http://a webrisk", false},
		{"http://a", "http://b", false},
		{"http://a http://b", "http://aa", false},
	} {
		testkit.Equal(t, tc.now+" after "+tc.before, of(tc.now).Origin("").Related(tc.before), tc.want)
	}
}

// An engine lives as long as somebody holds it, and a hold ends once.
func TestEqualSettingsShareAnEngineUntilTheLastHoldEnds(t *testing.T) {
	s := Settings{Endpoint: "http://shared.example", APIKey: "key", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	other := s
	other.Cache = 7
	synctest.Test(t, func(t *testing.T) {
		r := ForTests{NewRegistry(Edge{Transport: listing(t, 0)})}
		want := func(engines, holders int) {
			t.Helper()
			e, h := r.Count()
			testkit.Equal(t, "engines and holds", []int{e, h}, []int{engines, holders})
		}
		_, endFirst := acquire(t, r, s, 0)
		_, endSecond := acquire(t, r, s, 0)
		want(1, 2)
		endFirst()
		endFirst()
		want(1, 1)
		_, endThird := acquire(t, r, other, 0)
		want(2, 2)
		endSecond()
		endThird()
		want(0, 0)
		testkit.Equal(t, "ready when no engine is left", r.Ready(), true)
	})
}

// A reload that fails after the start of its engines leaves the one before with its own folder and count.
func TestAFailedReloadLeavesTheCountOfSearchesWhereItWas(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	s := Settings{APIKey: "key", Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", DB: before, Budget: 100, Share: 100}
	synctest.Test(t, func(t *testing.T) {
		google := listing(t, time.Hour)
		google.Publish("se-4b", [][]byte{{0, 2, 3, 4}, {1, 2, 3, 4}, {2, 2, 3, 4}, {3, 2, 3, 4}, {4, 2, 3, 4}, {5, 2, 3, 4}})
		r := ForTests{NewRegistry(Edge{Transport: google, FirstContact: atOnce})}
		e, release := acquire(t, r, s, 0)
		spend := func(first byte) {
			t.Helper()
			client := lookup.AdmitBy(nil, e.Shares, netip.MustParseAddr("192.0.2.1")).All()
			_, err := e.Checker.Search(t.Context(), []lookup.Prefix{lookup.Prefix([]byte{first, 2, 3, 4})}, false, client, nil)
			testkit.Must(t, err)
		}
		for i, db := range []string{after, "", after} {
			spend(byte(2 * i))
			next := s
			next.DB = db
			_, end := acquire(t, r, next, 0)
			end()
			spend(byte(2*i + 1))
		}
		release()
		ledger, err := updater.NewLedger(e.openStore("key", nil))
		testkit.Must(t, err)
		testkit.Equal(t, "searches in the folder of the engine that stays", ledger.Spent(time.Now()), 6)
		uses := ledger.Uses()
		testkit.Equal(t, "clients, and searches of the first", []any{len(uses), uses[0].Kept}, []any{1, 6})
	})
}

// A budget is the operator's money, whichever key it is spent with and wherever that is: without db, too, a reload renews none,
// nor one that goes back.
func TestAReloadWithAnotherKeyRenewsNoBudgetWithoutADB(t *testing.T) {
	s := Settings{Protocol: protocol.DialectWebRisk.Name, Lists: "se-4b", Budget: 100, Share: 100}
	synctest.Test(t, func(t *testing.T) {
		google := listing(t, time.Hour)
		r := ForTests{NewRegistry(Edge{Transport: google, FirstContact: atOnce})}
		release := func() {}
		for i, key := range []string{"OLD", "NEW", "OLD"} {
			s.APIKey = key
			google.ClientStarted() // another key is another client
			e, end := acquire(t, r, s, 0)
			release()
			release = end
			testkit.Equal(t, i, e.ledger.Remaining(100, time.Now()), 100-i)
			_, n, err := e.Confirm(t.Context(), []lookup.Prefix{lookup.Prefix([]byte{1, 2, 3, 4})})
			testkit.Must(t, err)
			testkit.Equal(t, i, n, 1)
			time.Sleep(time.Minute)
		}
		release()
	})
}

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	files.WaitLimit = time.Minute         // a busy machine has slow disks that do not hang
	os.Exit(m.Run())
}

// Engines with two keys and without db have one series. It shows what is worse.
func TestTheSeriesOfTwoKeysShowsWhatIsWorse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ForTests{NewRegistry(Edge{Transport: server(t)})}
		s := Settings{Endpoint: "http://tenants.example", APIKey: "ONE", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
		without, release := acquire(t, r, s, time.Hour) // nothing yet
		refused := updater.Pace(&outcomes{err: &updater.StatusError{Code: http.StatusForbidden}}, without.Schedule, s.SearchRules(nil), without.reporter.report)
		_, err := refused.Search(t.Context(), nil)
		testkit.WantError(t, err)
		s.APIKey = "TWO"
		_, releaseTwo := acquire(t, r, s, 0)
		defer releaseTwo()
		want := func(when string, entries float64, until time.Time) {
			t.Helper()
			metric := func(name string) float64 { return testkit.Metric(t, name, "endpoint", s.Endpoint) }
			fetched := metric("list_last_success_timestamp_seconds") != 0
			testkit.Equal(t, when+": entries, fetched", []any{metric("list_entries"), fetched}, []any{entries, entries != 0})
			testkit.Equal(t, when+": the end of the pause", metric("search_not_before_timestamp_seconds"), unixSeconds(until))
		}
		paused := without.SearchHold().Until
		testkit.Equal(t, "confirmations are paused", paused.After(time.Now()), true)
		want("one of them is refused", 0, paused)
		release()
		want("the other one alone", 1, time.Time{})
	})
}
