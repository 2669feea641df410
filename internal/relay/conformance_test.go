package relay

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// row is one thing that a client of Google's server may expect.
type row struct {
	what string
	// source is the page and the section. [G]: published by Google for this API; [g]: seen in
	// a client of Google's; [F]: in Firefox; [O]: observed by others; [J]: our judgement.
	source string
	try    func(s *subject) error
}

// subject is a server that is examined.
type subject struct {
	name   string
	url    string
	google *protocoltest.Server
	client *http.Client
	before map[string]*sbv5.HashList // answers with the lists before the change
}

// conformanceKey is the key that clients send.
const conformanceKey = "CONFORMANCE"

// manyThreats is a number of threats whose answer is worth compressing.
const manyThreats = 60

// Contents of lists before and after the change. Three of them do not change.
var contentsBefore, contentsAfter = conformanceContents()

func conformanceContents() (before, after map[string][]string) {
	zero := string(make([]byte, 4))
	before = map[string][]string{"uws-4b": nil, "pha-4b": {zero}, "mw-4b": entriesFrom(4, 0, 1200)}
	after = map[string][]string{"uws-4b": nil, "pha-4b": {zero}, "mw-4b": entriesFrom(4, 0, 1200)}
	for name, width := range map[string]int{"se-4b": 4, "mw-8b": 8, "uws-16b": 16, "pha-32b": 32} {
		n := 12_000 / width
		before[name], after[name] = entriesFrom(width, 0, n), entriesFrom(width, n/2, n+n/2)
	}
	for _, e := range []string{"evil.example/", "both.example/", "unconfirmed.example/", "canary.example/"} {
		after["se-4b"] = append(after["se-4b"], string(prefixOf(e, 4)))
	}
	before["se-4b"] = append(before["se-4b"], string(prefixOf("gone.example/", 4)))
	for i := range manyThreats {
		after["se-4b"] = append(after["se-4b"], string(prefixOf(fmt.Sprintf("m%d.example/", i), 4)))
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

// fetched reports whether the server has these contents.
func (s *subject) fetched(contents map[string][]string) bool {
	for name, entries := range contents {
		var l sbv5.HashList
		if s.read(&l, "/v5/hashList/"+name) != nil {
			return false
		}
		sum := sha256.Sum256([]byte(strings.Join(entries, "")))
		if string(l.Sha256Checksum) != string(sum[:]) {
			return false
		}
	}
	return true
}

// change replaces the first contents with the second.
func (s *subject) change(t *testing.T) {
	t.Helper()
	s.note(t)
	s.put(contentsAfter, 30*time.Minute)
	testkit.Until(t, "new lists of "+s.name, func() bool { return s.fetched(contentsAfter) })
}

// note waits for the first contents and notes what the server answers.
func (s *subject) note(t *testing.T) {
	t.Helper()
	testkit.Until(t, "lists of "+s.name, func() bool { return s.fetched(contentsBefore) })
	for name := range contentsBefore {
		l := new(sbv5.HashList)
		testkit.Must(t, s.read(l, "/v5/hashList/"+name))
		s.before[name] = l
	}
}

// lenient does not mind what a client does: rows break rules.
type lenient struct{}

func (lenient) Errorf(string, ...any) {}

func newSubject(name string, google *protocoltest.Server) *subject {
	s := &subject{name: name, google: google, before: make(map[string]*sbv5.HashList)}
	// No compression unless a row asks for it.
	s.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	s.put(contentsBefore, time.Second)
	google.AddThreat("evil.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	google.AddThreat("gone.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	google.AddThreat("both.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	google.AddThreat("both.example/", sbv5.ThreatType_MALWARE, sbv5.ThreatAttribute_FRAME_ONLY)
	google.AddThreat("canary.example/", sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_CANARY)
	for i := range manyThreats {
		google.AddThreat(fmt.Sprintf("m%d.example/", i), sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	return s
}

// judging returns the judging server itself.
func judging(t *testing.T, report protocoltest.Reporter) *subject {
	s := newSubject("judging server", protocoltest.New(report))
	s.google.SetKey(conformanceKey)
	server := httptest.NewServer(s.google)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// relayed returns a relay in front of a judging server, which judges the relay. The relay has
// another key than its clients.
func relayed(t *testing.T) *subject {
	w := newWorld(t)
	s := newSubject("relay", protocoltest.New(t))
	s.google.SetKey("UPSTREAM")
	server := httptest.NewServer(s.google)
	t.Cleanup(server.Close)
	w.cfg.Settings.Lists = "se-4b mw-4b uws-4b pha-4b mw-8b uws-16b pha-32b"
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport, w.cfg.Key = server.URL, nil, "UPSTREAM"
	w.cfg.ClientKeyFile = filepath.Join(t.TempDir(), "keys")
	put(t, w.cfg.ClientKeyFile, conformanceKey+"\n")
	s.url = run(t, w.cfg).url
	return s
}

// What a client of Google's server may expect, it gets from a relay. The judging server must
// pass the same rows: a test with a server that breaks the protocol would show nothing.
func TestTheRelayConformsToVersion5(t *testing.T) {
	testkit.Long(t)
	subjects := []*subject{judging(t, lenient{}), relayed(t)}
	for _, s := range subjects {
		s.change(t)
	}
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "what\tsource\tjudging server\trelay")
	for _, r := range slices.Concat(listRows, batchRows, searchRows, frameRows) {
		fmt.Fprintf(out, "%s\t%s", r.what, r.source)
		for _, s := range subjects {
			result := "yes"
			if err := r.try(s); err != nil {
				result = "NO"
				t.Errorf("%s: %s (%s): %v", s.name, r.what, r.source, err)
			}
			fmt.Fprintf(out, "\t%s", result)
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush()
	t.Logf("\n%s", table.String())
}
