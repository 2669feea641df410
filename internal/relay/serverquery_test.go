package relay

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// ask sends a request to a handler, without a socket.
func ask(t testing.TB, h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := requestOf(t, target, "192.0.2.1:4000", "")
	r.Method = method
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return recorded(h, r)
}

// requestOf returns a request of a client with a key.
func requestOf(t testing.TB, target, remote, key string) *http.Request {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	testkit.Must(t, err)
	r := &http.Request{Method: http.MethodGet, URL: u, RequestURI: target, Header: make(http.Header), RemoteAddr: remote, Body: http.NoBody}
	if key != "" {
		r.Header.Set("X-Goog-Api-Key", key)
	}
	return r.WithContext(t.Context())
}

func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// prefixOf returns the first bytes of the hash of an expression.
func prefixOf(expression string, n int) []byte {
	hash := sha256.Sum256([]byte(expression))
	return hash[:n]
}

// answered decodes an answer that must be good.
func answered(t testing.TB, w *httptest.ResponseRecorder, m proto.Message) {
	t.Helper()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-protobuf" {
		t.Fatalf("status %d, type %q, %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	testkit.Must(t, proto.Unmarshal(w.Body.Bytes(), m))
}

func TestTheRelayRefusesAllElse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		good := searchRequest("evil.example/")
		for _, tc := range []struct {
			name, method, target string
			code                 int
			words                string
		}{
			{"no method", "GET", "/", 404, "no such method"},
			{"metrics", "GET", "/metrics", 404, "no such method"},
			{"a URL in clear text", "GET", "/v5/urls:search?urls=evil.example", 404, "no such method"},
			{"version 4", "GET", "/v4/threatLists", 404, "no such method"},
			{"a path below a list", "GET", "/v5/hashList/se-4b/x", 404, "no such method"},
			{"no list", "GET", "/v5/hashList/", 404, "no such method"},
			{"another list", "GET", "/v5/hashList/xy-4b", 404, `does not have list "xy-4b": it has mw-4b, se-4b`},
			{"POST", "POST", good, 405, "GET only"},
			{"HEAD", "HEAD", good, 405, "GET only"},
			{"an unknown parameter", "GET", "/v5/hashes:search?x=1", 400, `unknown parameter "x"`},
			{"a parameter of another method", "GET", good + "&names=se-4b", 400, "unknown parameter"},
			{"JSON", "GET", good + "&alt=json", 400, "alt=proto only"},
			{"alt twice", "GET", good + "&alt=proto&alt=proto", 400, "2 times"},
			{"a broken escape", "GET", "/v5/hashes:search?hashPrefixes=%zz", 400, "cannot be parsed"},
			{"a message of nothing", "GET", "/v5/hashes:search?$req=_w%3D%3D", 400, "$req is not a message"},
			{"a message for a method without", "GET", "/v5/hashLists?$req=AA%3D%3D", 400, "$req is not for this method"},
			{"a list more, of another server", "GET", "/v5/hashLists:batchGet?names=se-4b&names=xy-4b", 404, "does not have list"},
			{"a long version", "GET", "/v5/hashList/se-4b?version=" + strings.Repeat("A", 2000), 400, "a version of 1500 bytes"},
			{"a size in words", "GET", "/v5/hashList/se-4b?sizeConstraints.maxDatabaseEntries=all", 400, "not a number"},
			{"a long URL", "GET", good + "&key=" + strings.Repeat("A", maxURL), 414, "more than 32768 bytes"},
		} {
			got := ask(t, w.relay, tc.method, tc.target)
			var body errorObject
			err := json.Unmarshal(got.Body.Bytes(), &body)
			if err != nil || got.Code != tc.code || body.Error.Code != tc.code || body.Error.Status == "" || !strings.Contains(body.Error.Message, tc.words) {
				t.Errorf("%s: status %d, %s, %v, want %d and %q", tc.name, got.Code, got.Body, err, tc.code, tc.words)
			}
		}
		w.mustSearch(0, 0)
		got := recorded(w.relay, httptest.NewRequest("GET", good, strings.NewReader("a body")))
		testkit.Equal(t, "a body", got.Code, 400)
		testkit.WantParts(t, got.Body.String(), "no body")
	})
}

// As Google's front end does: google/webrisk, for one, sends names with underscores.
func TestTheRelayTakesSystemParametersAndNamesOfFieldsAsGoogleDoes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		prefix := param64(prefixOf("evil.example/", 4))
		want := ask(t, w.relay, "GET", "/v5/hashes:search?hashPrefixes="+prefix).Body.String()
		for _, more := range []string{"$alt=proto", "alt=proto", "fields=*", "$fields=*", "prettyPrint=false", "$prettyPrint=true", "quotaUser=u", "access_token=t", "$.xgafv=2", "callback=f", "$ct=application/x-protobuf", "key=k"} {
			for _, name := range []string{"hashPrefixes", "hash_prefixes"} {
				got := ask(t, w.relay, "GET", "/v5/hashes:search?"+name+"="+prefix+"&"+more)
				if got.Code != 200 || got.Body.String() != want {
					t.Errorf("%s with %s: status %d, %s", name, more, got.Code, got.Body)
				}
			}
		}
		for target, code := range map[string]int{
			"/v5/hashLists?page_size=1&page_token=":                                                            200,
			"/v5/hashLists:batchGet?names=se-4b&size_constraints.max_update_entries=1024":                      200,
			"/v5/hashLists:batchGet?names=se-4b&sizeConstraints.max_update_entries=1024":                       200,
			"/v5/hashList/se-4b?sizeConstraints.max_database_entries=-1":                                       400,
			"/v5/hashList/se-4b?sizeConstraints.max_update_entries=1024&sizeConstraints.maxUpdateEntries=1024": 400,
			"/v5/hashes:search?$alt=json&hash_prefixes=" + prefix:                                              400,
			"/v5/hashes:search?$alt=proto&alt=json&hash_prefixes=" + prefix:                                    400,
			"/v5/hashes:search?hash__prefixes_x=" + prefix:                                                     400,
		} {
			got := ask(t, w.relay, "GET", target)
			testkit.Equal(t, target+": "+got.Body.String(), got.Code, code)
		}
	})
}

// The list of lists of a server with many lists is text, which gzip makes shorter.
func TestAnswersAreCompressedWhereItHelps(t *testing.T) {
	text := []byte(strings.Repeat("safebrowsing ", 200))
	for _, tc := range []struct {
		name, accepts string
		reply         reply
		want          string // Content-Encoding
	}{
		{"text", "br, GZIP;q=0.5", reply{parts: [][]byte{text, text}, compress: true}, "gzip"},
		{"not accepted", "br", reply{parts: [][]byte{text}, compress: true}, ""},
		{"refused", "gzip; q=0", reply{parts: [][]byte{text}, compress: true}, ""},
		{"short", "gzip", reply{parts: [][]byte{[]byte("short")}, compress: true}, ""},
		{"coded already", "gzip", reply{parts: [][]byte{text}, compress: false}, ""},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", tc.accepts)
		tc.reply.write(w, r)
		body := io.Reader(w.Body)
		coding := w.Header().Get("Content-Encoding")
		testkit.Equal(t, tc.name, coding, tc.want)
		if coding != "" {
			z, err := gzip.NewReader(body)
			testkit.Must(t, err)
			body = z
		}
		raw, err := io.ReadAll(body)
		testkit.Must(t, err)
		testkit.Equal(t, tc.name, string(raw), string(bytes.Join(tc.reply.parts, nil)))
	}
}

// FuzzRelayRequest sends any request. The relay answers by a status that clients know, asks about listed prefixes only, never panics.
func FuzzRelayRequest(f *testing.F) {
	evil := param64(prefixOf("evil.example/", 4))
	for _, seed := range []string{
		"/v5/hashes:search?hashPrefixes=" + evil, "/v5/hashList/se-4b?version=AAAA", "/v5/hashLists?pageSize=3",
		"/v5/hashLists:batchGet?names=se-4b&names=mw-4b&sizeConstraints.maxUpdateEntries=1024&version=AAAA&key=x",
		"/v5/hashes:search?$req=CgRhYWFh&$ct=application/x-protobuf", "/v5/hashes:search?hashPrefixes=%", "/v5/hashList/%2e%2e/x", "/v5/urls:search",
	} {
		path, query, _ := strings.Cut(seed, "?")
		f.Add("GET", path, query, "192.0.2.1:53", "gzip", "key")
	}
	w := newWorld(f)
	w.open()
	testkit.Until(f, "the lists", w.relay.Ready)
	listed := lookup.Prefix(prefixOf("evil.example/", 4))
	f.Fuzz(func(t *testing.T, method, path, query, remote, accepts, key string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query}, RequestURI: path + "?" + query, RemoteAddr: remote,
			Header: http.Header{"Accept-Encoding": {accepts}, "X-Goog-Api-Key": {key}}, Body: http.NoBody}
		if got := recorded(w.relay, r); !slices.Contains([]int{200, 400, 404, 405, 414}, got.Code) {
			t.Errorf("status %d: %s", got.Code, got.Body)
		}
		for _, s := range w.google.Requests("search") {
			for _, p := range s.Prefixes {
				if lookup.Prefix(p) != listed {
					t.Errorf("the server was asked about %x", p)
				}
			}
		}
	})
}

// Whatever protocol the server speaks, clients speak version 5 and get the same verdicts.
func TestTheRelayAsksByAnyProtocol(t *testing.T) {
	for _, d := range protocol.Dialects() {
		runWorld(t, d.Name, func(t *testing.T, w *world) {
			w.threaten("evil.example/")
			if d != protocol.DialectV5 { // lists with longer entries
				w.google.Publish("se-4b", [][]byte{prefixOf("evil.example/", 4), prefixOf("long.example/", 6)})
				w.google.AddThreat("long.example/", 2)
			}
			w.cfg.Settings.Protocol = d.Name
			w.start()
			time.Sleep(2 * time.Minute)
			c := w.replica(1)
			c.mustBe(t, lookup.Unsafe, "evil.example.")
			if d != protocol.DialectV5 {
				c.mustBe(t, lookup.Unsafe, "long.example.")
			}
			c.mustBe(t, lookup.Safe, "good.example.")
		})
	}
}

// The SHA-256 of these two agree in four bytes and differ in the fifth.
const lengthened, popular = "h92304.com", "h107960.com"

// Web Risk lengthens an entry that would match a popular URL. Behind one relay and behind two, that URL causes no search, as it does
// not for a client of Web Risk itself. Another client of the relay causes one search, and both block the name that is listed.
func TestARelayCausesNoSearchThatADirectClientDoesNot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		relays int
		old    bool
		want   int
	}{
		{"direct", 0, false, 0},
		{"behind a relay", 1, false, 0},
		{"behind two relays", 2, false, 0},
		{"behind a relay, a client that knows no longer entries", 1, true, 1},
	} {
		runWorld(t, tc.name, func(t *testing.T, w *world) {
			listed, other := lookup.HashExpression(lengthened+"/"), lookup.HashExpression("other.example/")
			w.google.Publish("se-4b", [][]byte{listed[:5], other[:4]})
			w.google.AddThreat(lengthened+"/", sbv5.ThreatType_SOCIAL_ENGINEERING)
			w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
			c := new(replica)
			switch tc.relays {
			case 0:
				c = newReplica(t, w.cfg.Edge, w.cfg.Settings)
			case 2:
				w.begin()
				w = w.behind().world
				c = w.replica(1)
			default:
				w.begin()
				c = w.replica(1)
				c.wire.old.Store(tc.old)
			}
			time.Sleep(2 * time.Minute)
			for range 2 {
				before := len(w.google.Requests("search"))
				c.mustBe(t, lookup.Safe, popular+".")
				w.mustSearch(before, tc.want)
				c.mustBe(t, lookup.Unsafe, lengthened+".")
				w.google.Publish("se-4b", [][]byte{listed[:6]}) // a partial update
				time.Sleep(2 * time.Hour)
			}
		})
	}
}

// searchOf asks the relay about expressions.
func (w *world) searchOf(expressions ...string) *httptest.ResponseRecorder {
	return ask(w.t, w.relay, "GET", searchRequest(expressions...))
}

// mustComeBack fails unless a client is told to ask again after these seconds.
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

// The first search of Web Risk is noted as failed until it is answered. Clients that ask meanwhile come back after a second.
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
		testkit.Equal(t, "the search under way, and one after it", [2]int{<-first, w.searchOf("worse.example/").Code}, [2]int{200, 200})
	})
}

// After a failure Retry-After is the relay's own back-off, but a minute at most: by then the relay may know the answer.
func TestRetryAfterIsTheBackoffAfterAFailureAndAMinuteAtMost(t *testing.T) {
	for _, d := range protocol.Dialects() {
		runWorld(t, d.Name, func(t *testing.T, w *world) {
			w.cfg.Settings.Protocol = d.Name
			w.begin()
			w.google.Break("search", 1, protocoltest.Fault{Status: 429})
			for range 2 { // the failure itself, and the wait after it
				mustComeBack(t, w.searchOf("evil.example/"), "60")
				testkit.Between(t, "the relay's wait", time.Until(w.relay.engine.SearchHold().Until), 10*time.Minute, 24*time.Hour)
				time.Sleep(time.Minute)
			}
			testkit.Equal(t, "searches counted as failed and as held", [2]int{w.counted(outcomeUnavailable), w.counted(outcomeBackoff)}, [2]int{1, 1})
		})
	}
}

// All clients share the relay's budget. A client asks about a name again after a minute, and about others at once.
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
		asked := w.counted(outcomeBudget)
		testkit.Equal(t, "refusals", asked, 1)
		for _, step := range []struct {
			after time.Duration
			asks  int
		}{{0, 0}, {time.Minute - time.Second, 0}, {time.Second, 1}, {time.Second, 0}} {
			time.Sleep(step.after)
			d := second.decide("worse.example.")
			testkit.Equal(t, step.after, []any{d.Verdict, d.By}, []any{lookup.Unsure, lookup.ByBudget})
			asked += step.asks
			testkit.Equal(t, fmt.Sprint("searches of the client that were refused, after ", step.after), w.counted(outcomeBudget), asked)
		}
		// No hour may take the whole budget of a day, so the day may have some left.
		testkit.WantParts(t, w.searchOf("worse.example/").Body.String(), "the relay's budget allows no search now")
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
		testkit.Equal(t, "entries at once, of the lists that the relay has", c.entries(), 1)
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
		testkit.Equal(t, "lines about a client in mode local", lines.About("are in no list"), nil)
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
	_, _, err := h.told(request, pseudonym([]byte("CLIENT")), refuses)(1)
	testkit.Is(t, "a share that is spent", err, lookup.ErrShare)
	testkit.Equal(t, "the address of the client", named.String(), "10.9.8.7")
}

// The names of its lists are what a doctor asks for, who is called when something is new.
func TestARelayWithoutItsFirstListsDoesNotSayThatItHasNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cfg.Edge.FirstContact = func() time.Duration { return 40 * time.Second }
		w.start()
		for path, words := range map[string]string{
			"/v5/hashes:search?hashPrefixes=AAAAAA": "the relay has no lists yet",
			"/v5/hashLists":                         "the relay has no lists yet: it fetches them within a minute of its start",
		} {
			got := ask(t, w.relay, "GET", path)
			mustComeBack(t, got, "60")
			testkit.WantParts(t, got.Body.String(), words)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := ask(t, w.relay, "GET", "/v5/hashLists")
		testkit.Equal(t, "status", got.Code, 200)
		testkit.WantParts(t, got.Body.String(), "se-4b")
	})
}

// A client that has the lists asks about names at once: the first contact may end a moment later.
func TestARelayThatHandsItsListsOnAnswersSearches(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.begin()
		h := w.relay.handler
		h.first = make(chan struct{}) // as it was when the lists were published
		testkit.Equal(t, "an answer by the lists", w.searchOf("clean.example/").Code, 200)
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
	testkit.Equal(t, "advice", lines.About("asks for list"), nil)
}
