package relay

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// row is one thing that a client of Google's server may expect.
type row struct {
	what string
	// source is the page and the section. [G]: published by Google for this API; [g]: seen in
	// a client of Google's; [F]: in Firefox; [O]: observed by others; [J]: our judgement.
	source string
	try    func(s *subject)
}

// subject is a server that is examined.
type subject struct {
	t       *testing.T
	name    string
	handler http.Handler
	google  *protocoltest.Server
	before  map[string]*sbv5.HashList // answers with the lists before the change
	row     row                       // that is tried
}

// conformanceKey is the key that clients send.
const conformanceKey = "CONFORMANCE"

// Contents of lists before and after the change. Three of them do not change.
var contentsBefore, contentsAfter = conformanceContents()

func conformanceContents() (before, after map[string][]string) {
	before = map[string][]string{"uws-4b": nil, "pha-4b": {"\x00\x00\x00\x00"}, "mw-4b": entriesFrom(4, 0, 1200)}
	after = maps.Clone(before)
	for name, width := range map[string]int{"se-4b": 4, "mw-8b": 8, "uws-16b": 16, "pha-32b": 32} {
		n := 12_000 / width
		before[name], after[name] = entriesFrom(width, 0, n), entriesFrom(width, n/2, n+n/2)
	}
	before["se-4b"] = append(before["se-4b"], string(prefixOf("gone.example/", 4)))
	for _, e := range []string{"evil.example/", "both.example/", "unconfirmed.example/", "canary.example/"} {
		after["se-4b"] = append(after["se-4b"], string(prefixOf(e, 4)))
	}
	for _, contents := range []map[string][]string{before, after} {
		for _, entries := range contents {
			slices.Sort(entries)
		}
	}
	return before, after
}

// entriesFrom returns the entries numbered from first to last, last excluded.
func entriesFrom(width, first, last int) (all []string) {
	for i := first; i < last; i++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint32(nil, uint32(i)))
		all = append(all, string(sum[:width]))
	}
	return all
}

// put publishes contents. Each list then has a minimum wait.
func (s *subject) put(contents map[string][]string, wait time.Duration) {
	for name, entries := range contents {
		var raw [][]byte
		for _, e := range entries {
			raw = append(raw, []byte(e))
		}
		s.google.Publish(name, raw)
		s.google.SetMinimumWait(name, wait)
	}
}

// lenient does not mind what a client does: rows break rules.
type lenient struct{}

func (lenient) Errorf(string, ...any) {}

func newSubject(t *testing.T, name string, google *protocoltest.Server) *subject {
	s := &subject{t: t, name: name, handler: google, google: google, before: make(map[string]*sbv5.HashList)}
	s.put(contentsBefore, time.Second)
	for _, e := range []string{"evil.example/", "gone.example/", "both.example/"} {
		google.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	google.AddThreat("both.example/", sbv5.ThreatType_MALWARE, sbv5.ThreatAttribute_FRAME_ONLY)
	google.AddThreat("canary.example/", sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_CANARY)
	return s
}

// What a client of Google's server may expect, it gets from a relay. The judging server must
// pass the same rows: a test with a server that breaks the protocol would show nothing.
func TestTheRelayConformsToVersion5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		judging, w := newSubject(t, "judging server", protocoltest.New(lenient{})), newWorld(t)
		judging.google.SetKey(conformanceKey)
		relayed := newSubject(t, "relay", w.google) // its server judges it; it has another key than its clients
		w.google.SetKey("UPSTREAM")
		w.cfg.Key, w.cfg.Settings.Lists = "UPSTREAM", "se-4b mw-4b uws-4b pha-4b mw-8b uws-16b pha-32b"
		w.cfg.ClientKeyFile = testkit.Write(t, t.TempDir(), "keys", conformanceKey+"\n")
		w.start()
		relayed.handler = w.relay
		for _, s := range []*subject{judging, relayed} {
			for name := range contentsBefore {
				s.before[name] = s.list(name, nil)
			}
			s.put(contentsAfter, 30*time.Minute)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			for _, s.row = range slices.Concat(listRows, batchRows, searchRows, frameRows) {
				s.row.try(s)
				t.Logf("%s: %s (%s)", s.name, s.row.what, s.row.source)
			}
		}
	})
}

// want wants that a condition holds.
func (s *subject) want(holds bool, format string, args ...any) {
	s.t.Helper()
	if !holds {
		s.t.Errorf("%s: %s (%s): %s", s.name, s.row.what, s.row.source, fmt.Sprintf(format, args...))
	}
}

// get asks for a path with pairs of names and values as its query, and with the key.
func (s *subject) get(path string, pairs ...string) *httptest.ResponseRecorder {
	return s.send(http.MethodGet, path, http.Header{"X-Goog-Api-Key": {conformanceKey}, "User-Agent": {"conformance/1"}}, pairs...)
}

func (s *subject) send(method, path string, header http.Header, pairs ...string) *httptest.ResponseRecorder {
	values := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		values.Add(pair[0], pair[1])
	}
	r := requestOf(s.t, path+"?"+values.Encode(), "192.0.2.1:4000", "")
	r.Method, r.Header = method, header
	return recorded(s.handler, r)
}

// read asks with alt=proto and decodes the answer, which must be good.
func (s *subject) read(m proto.Message, path string, pairs ...string) {
	s.decode(s.get(path, append([]string{"alt", "proto"}, pairs...)...), m)
}

func (s *subject) decode(got *httptest.ResponseRecorder, m proto.Message) {
	kind, err := got.Header().Get("Content-Type"), proto.Unmarshal(got.Body.Bytes(), m)
	s.want(got.Code == http.StatusOK && kind == "application/x-protobuf" && err == nil,
		"status %d, content type %q: %.200s", got.Code, kind, got.Body)
}

// errorObject is the body of Google's errors.
type errorObject struct {
	Error struct {
		Code            int
		Message, Status string
	}
}

// refused wants Google's error object with one of the statuses, and returns its message.
func (s *subject) refused(got *httptest.ResponseRecorder, statuses ...int) (message string) {
	var body errorObject
	err := json.Unmarshal(got.Body.Bytes(), &body)
	e, word := body.Error, map[int]string{400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}[got.Code] // google.rpc.Code
	s.want(slices.Contains(statuses, got.Code) && strings.HasPrefix(got.Header().Get("Content-Type"), "application/json") &&
		err == nil && e.Code == got.Code && e.Message != "" && e.Status != "" && (word == "" || e.Status == word),
		"status %d, %v %s, want %v", got.Code, got.Header(), got.Body, statuses)
	return e.Message
}

// refusal wants an error object with status 400. The one of a relay must say words.
func refusal(words, path string, pairs ...string) func(s *subject) {
	return func(s *subject) {
		got := s.refused(s.get(path, append([]string{"alt", "proto"}, pairs...)...), 400)
		s.want(s.handler == s.google || strings.Contains(got, words), "%s, want %q", got, words)
	}
}

// absent wants an error object that says that there is no such list.
func absent(path string, pairs ...string) func(s *subject) {
	return func(s *subject) { s.refused(s.get(path, append([]string{"alt", "proto"}, pairs...)...), 400, 404) }
}

// keyed asks for the list of lists with a header and wants a good answer, or an error of the key.
func keyed(good bool, header http.Header, pairs ...string) func(s *subject) {
	return func(s *subject) {
		got := s.send(http.MethodGet, "/v5/hashLists", header.Clone(), append([]string{"alt", "proto"}, pairs...)...)
		if good {
			s.decode(got, new(sbv5.ListHashListsResponse))
		} else {
			s.refused(got, 400, 403)
		}
	}
}

// param64 encodes bytes for a parameter.
func param64(raw []byte) string { return base64.URLEncoding.EncodeToString(raw) }

// prefixPairs returns prefixes as pairs of a query.
func prefixPairs(prefixes ...[]byte) (pairs []string) {
	for _, p := range prefixes {
		pairs = append(pairs, "hashPrefixes", param64(p))
	}
	return pairs
}

// manyPrefixes returns n prefixes, which are in no list.
func manyPrefixes(n int) (all [][]byte) {
	for _, e := range entriesFrom(4, 10_000, 10_000+n) {
		all = append(all, []byte(e))
	}
	return all
}

// list asks for a list by itself. A nil version is left out.
func (s *subject) list(name string, version []byte, pairs ...string) *sbv5.HashList {
	if version != nil {
		pairs = append(pairs, "version", param64(version))
	}
	l := new(sbv5.HashList)
	s.read(l, "/v5/hashList/"+name, pairs...)
	return l
}

// leads wants that an update leads from one content to another.
func (s *subject) leads(from []string, l *sbv5.HashList, to []string) {
	got := s.apply(from, l)
	s.want(got.Checksum == sha256.Sum256([]byte(strings.Join(to, ""))), "list %s: not the %d entries that it should have", l.Name, len(to))
}

// apply lets our own client, which the judging server judges elsewhere, apply an update of a list to the entries that it has.
func (s *subject) apply(base []string, l *sbv5.HashList) (list updater.List) {
	raw, err := proto.Marshal(l)
	testkit.Must(s.t, err)
	c, err := protocol.NewV5(protocol.Config{UserAgent: "conformance/1", Transport: &wire{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(raw)
	})}})
	testkit.Must(s.t, err)
	old := updater.List{Name: l.Name, Version: []byte{1}, Set: setOf(s.t, base...)}
	_, err = c.Fetch(s.t.Context(), []updater.Want{{List: l.Name, Version: old.Version}}, func(_ int, u *updater.Update) {
		var applyErr error
		list, _, applyErr = updater.Apply(old, u, updater.DefaultMaxEntries)
		s.want(applyErr == nil, "list %s: %v", l.Name, applyErr)
	})
	s.want(err == nil, "list %s: %v", l.Name, err)
	return list
}

// changes is how many entries of four bytes an update adds and removes.
func changes(l *sbv5.HashList) (n int32) {
	for _, coded := range []*sbv5.RiceDeltaEncoded32Bit{l.GetAdditionsFourBytes(), l.CompressedRemovals} {
		if coded != nil {
			n += coded.EntriesCount + 1
		}
	}
	return n
}

// fullUpdate wants a full update of se-4b for a version.
func fullUpdate(version func(s *subject) []byte) func(s *subject) {
	return func(s *subject) {
		l := s.list("se-4b", version(s))
		s.want(!l.PartialUpdate, "a partial update")
		s.leads(nil, l, contentsAfter["se-4b"])
	}
}

// inSteps fetches a list in steps of 1024 changes with a version and a checksum each, all but the last without a wait; or at once.
func (s *subject) inSteps(name string, version []byte, held []string) {
	for step := 1; ; step++ {
		l := s.list(name, version, "sizeConstraints.maxUpdateEntries", "1024")
		list, more, n := s.apply(held, l), l.GetMinimumWaitDuration().AsDuration() == 0, changes(l)
		s.want((n <= 1024 || !more && step == 1) && (l.PartialUpdate || len(held) == 0), "step %d has %d changes", step, n)
		if !more || step > 10 || s.t.Failed() {
			s.want(!more, "the list has not ended after %d steps", step)
			s.leads(held, l, contentsAfter[name])
			return
		}
		raw, err := io.ReadAll(list.Set.Reader())
		testkit.Must(s.t, err)
		held, version = nil, l.Version
		for entry := range slices.Chunk(raw, 4) {
			held = append(held, string(entry))
		}
	}
}

// versions returns the versions of the lists before the change, as pairs.
func (s *subject) versions(names ...string) (pairs []string) {
	for _, name := range names {
		pairs = append(pairs, "version", param64(s.before[name].Version))
	}
	return pairs
}

// batch asks for lists. They must come in the order of the names.
func (s *subject) batch(names []string, pairs ...string) []*sbv5.HashList {
	for _, name := range names {
		pairs = append(pairs, "names", name)
	}
	var got sbv5.BatchGetHashListsResponse
	s.read(&got, "/v5/hashLists:batchGet", pairs...)
	if !slices.EqualFunc(got.HashLists, names, func(l *sbv5.HashList, name string) bool { return l.Name == name }) {
		s.t.Fatalf("%s: %s: lists %v, want %v", s.name, s.row.what, got.HashLists, names)
	}
	return got.HashLists
}

// mixed wants a full update of the first list, and a partial one of the second.
func (s *subject) mixed(all []*sbv5.HashList) {
	s.want(len(all) == 2 && !all[0].PartialUpdate && all[1].PartialUpdate, "%d lists, not a full and a partial one", len(all))
}

// pages wants these names of lists, with a bar between pages. Each list must say how long its entries are.
func (s *subject) pages(pageSize, want string) {
	lengths := map[sbv5.HashListMetadata_HashLength]string{2: "-4b", 3: "-8b", 4: "-16b", 5: "-32b"}
	all, token := "", ""
	for range 10 {
		var page sbv5.ListHashListsResponse
		s.read(&page, "/v5/hashLists", "pageSize", pageSize, "pageToken", token)
		for _, l := range page.HashLists {
			m := l.GetMetadata()
			ok := len(m.GetThreatTypes()) == 1 && strings.HasSuffix(l.Name, lengths[m.GetHashLength()]) && len(l.Version) == 0
			s.want(ok, "list %s: %v", l.Name, m)
			all += l.Name + " "
		}
		if token = page.NextPageToken; token == "" {
			break
		}
		all += "|"
	}
	s.want(all == want, "pages %s", all)
}

// readMessage sends a message as browsers do.
func (s *subject) readMessage(got proto.Message, path string, m proto.Message) {
	raw, err := proto.Marshal(m)
	testkit.Must(s.t, err)
	s.read(got, path, "$req", param64(raw), "$ct", "application/x-protobuf")
}

// searchFor searches for prefixes.
func (s *subject) searchFor(prefixes ...[]byte) *sbv5.SearchHashesResponse {
	got := new(sbv5.SearchHashesResponse)
	s.read(got, "/v5/hashes:search", prefixPairs(prefixes...)...)
	return got
}

// finds searches for the prefixes of expressions. It wants just some threats: an expression, its threats and their attributes.
func (s *subject) finds(expressions []string, want ...string) {
	var prefixes [][]byte
	of := make(map[string]string)
	for _, e := range expressions {
		prefixes = append(prefixes, prefixOf(e, 4))
		of[string(prefixOf(e, 32))] = e
	}
	var got []string
	for _, f := range s.searchFor(prefixes...).FullHashes {
		text := of[string(f.FullHash)]
		for _, d := range f.FullHashDetails {
			text += " " + d.ThreatType.String()
			for _, a := range d.Attributes {
				text += "+" + a.String()
			}
		}
		got = append(got, text)
	}
	slices.Sort(got)
	s.want(slices.Equal(got, want), "full hashes %q, want %q", got, want)
}
