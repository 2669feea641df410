package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
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

// param encodes bytes for a URL.
func param(raw []byte) string { return url.QueryEscape(base64.URLEncoding.EncodeToString(raw)) }

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
		var one sbv5.HashList
		answered(t, ask(t, w.relay, "GET", "/v5/hashList/se-4b"), &one)
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
			{"no prefix", "GET", "/v5/hashes:search", 400, "no parameter hashPrefixes"},
			{"a short prefix", "GET", "/v5/hashes:search?hashPrefixes=AAAA", 400, "3 bytes"},
			{"a full hash", "GET", "/v5/hashes:search?hashPrefixes=" + param(prefixOf("evil.example/", 32)), 400, "32 bytes"},
			{"not base64", "GET", "/v5/hashes:search?hashPrefixes=%21", 400, "not base64"},
			{"too many prefixes", "GET", "/v5/hashes:search?alt=proto" + strings.Repeat("&hashPrefixes=AAAAAA", 1001), 400, "1001 times"},
			{"an unknown parameter", "GET", "/v5/hashes:search?x=1", 400, `unknown parameter "x"`},
			{"a parameter of another method", "GET", good + "&names=se-4b", 400, "unknown parameter"},
			{"JSON", "GET", good + "&alt=json", 400, "alt=proto only"},
			{"alt twice", "GET", good + "&alt=proto&alt=proto", 400, "2 times"},
			{"a broken escape", "GET", "/v5/hashes:search?hashPrefixes=%zz", 400, "cannot be parsed"},
			{"a broken message", "GET", "/v5/hashes:search?$req=%21", 400, "$req is not base64"},
			{"a message of nothing", "GET", "/v5/hashes:search?$req=_w%3D%3D", 400, "$req is not a message"},
			{"a message for a method without", "GET", "/v5/hashLists?$req=AA%3D%3D", 400, "$req is not for this method"},
			{"no names", "GET", "/v5/hashLists:batchGet", 400, "no parameter names"},
			{"a name again", "GET", "/v5/hashLists:batchGet?names=se-4b&names=se-4b", 400, "more than once"},
			{"a list more, of another server", "GET", "/v5/hashLists:batchGet?names=se-4b&names=xy-4b", 404, "does not have list"},
			{"two versions of one list", "GET", "/v5/hashLists:batchGet?names=se-4b&names=mw-4b&version=" + param(one.GetVersion()) + "&version=" + param(one.GetVersion()), 400, `two versions of list "se-4b"`},
			{"two versions", "GET", "/v5/hashList/se-4b?version=AA&version=AA", 400, "more versions than lists"},
			{"a long version", "GET", "/v5/hashList/se-4b?version=" + strings.Repeat("A", 2000), 400, "a version of 1500 bytes"},
			{"a small update", "GET", "/v5/hashList/se-4b?sizeConstraints.maxUpdateEntries=1023", 400, "at least 1024"},
			{"a negative size", "GET", "/v5/hashList/se-4b?sizeConstraints.maxDatabaseEntries=-1", 400, "negative"},
			{"a size in words", "GET", "/v5/hashList/se-4b?sizeConstraints.maxDatabaseEntries=all", 400, "not a number"},
			{"another page", "GET", "/v5/hashLists?pageToken=2", 400, "no such page"},
			{"a long URL", "GET", good + "&key=" + strings.Repeat("A", maxURL), 414, "more than 32768 bytes"},
		} {
			got := ask(t, w.relay, tc.method, tc.target)
			var body errorObject
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				t.Errorf("%s: %v: %s", tc.name, err, got.Body)
			}
			if got.Code != tc.code || body.Error.Code != tc.code || body.Error.Status == "" || !strings.Contains(body.Error.Message, tc.words) {
				t.Errorf("%s: status %d, %s, want %d and %q", tc.name, got.Code, got.Body, tc.code, tc.words)
			}
		}
		if n := len(w.google.Requests("search")); n != 0 {
			t.Errorf("%d searches of the server, want none", n)
		}
		got := recorded(w.relay, httptest.NewRequest("GET", good, strings.NewReader("a body")))
		if got.Code != 400 || !strings.Contains(got.Body.String(), "no body") {
			t.Errorf("a body: %d, %s", got.Code, got.Body)
		}
	})
}

// As Google's front end does: google/webrisk, for one, sends names with underscores.
func TestTheRelayTakesSystemParametersAndNamesOfFieldsAsGoogleDoes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		prefix := param(prefixOf("evil.example/", 4))
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
			if got := ask(t, w.relay, "GET", target); got.Code != code {
				t.Errorf("%s: status %d, %s, want %d", target, got.Code, got.Body, code)
			}
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
		if got := w.Header().Get("Content-Encoding"); got != tc.want {
			t.Errorf("%s: coding %q, want %q", tc.name, got, tc.want)
		} else if got == "gzip" {
			body = unzip(t, body)
		}
		if raw, err := io.ReadAll(body); err != nil || !bytes.Equal(raw, bytes.Join(tc.reply.parts, nil)) {
			t.Errorf("%s: %d bytes, %v", tc.name, len(raw), err)
		}
	}
}

// FuzzRelayRequest sends any request. The relay must answer each with a status that a client
// knows, ask the server about prefixes in its lists only, and never panic.
func FuzzRelayRequest(f *testing.F) {
	evil := param(prefixOf("evil.example/", 4))
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
			for n := range tc.relays {
				if n == 0 {
					w.start()
				} else {
					w = w.behind().world
				}
				time.Sleep(2 * time.Minute)
			}
			var c *replica
			if tc.relays == 0 {
				c = w.direct()
			} else {
				c = w.replica(1)
				c.wire.old.Store(tc.old)
			}
			time.Sleep(2 * time.Minute)
			for range 2 {
				before := len(w.google.Requests("search"))
				c.mustBe(t, lookup.Safe, popular+".")
				if got := len(w.google.Requests("search")) - before; got != tc.want {
					t.Errorf("%s: %d searches, want %d", popular, got, tc.want)
				}
				c.mustBe(t, lookup.Unsafe, lengthened+".")
				w.google.Publish("se-4b", [][]byte{listed[:6]}) // a partial update
				time.Sleep(2 * time.Hour)
			}
		})
	}
}
