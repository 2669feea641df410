package protocoltest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// socket sends requests to a server on a socket.
type socket struct {
	server *httptest.Server
}

func (s socket) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(s.server.URL, "http://")
	return s.server.Client().Transport.RoundTrip(r)
}

func TestServerOnASocket(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}})
	server := httptest.NewServer(s)
	defer server.Close()
	client := socket{server: server}
	copies := map[string]*copyOf{}
	for range 20 { // at once again and again: the outcome must be known before
		s.ForgetVersions("se-4b")
		if bad, err := fetch(t, client, copies, nil, "se-4b"); err != nil || len(bad) > 0 {
			t.Fatal(bad, err)
		}
	}
	faults := SearchFaults()
	delete(faults, "slow")
	for name, f := range faults {
		s.Break("search", 1, f)
		r := polite(t, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}})
		if err := searchWith(client, r); err == nil {
			t.Errorf("%s does not break the answer", name)
		}
	}
	if n := len(s.Requests("search")); n != len(faults) {
		t.Errorf("%d searches, want %d: a request was repeated", n, len(faults))
	}
}

func TestWebRiskOnASocket(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryL)})
	server := httptest.NewServer(s)
	defer server.Close()
	client := socket{server: server}
	copies := map[string]*copyOf{}
	for range 20 { // at once again and again: the outcome must be known before
		s.ForgetVersions("se-4b")
		if bad, err := diffRisk(t, client, copies, "se-4b"); err != nil || bad != nil {
			t.Fatal(bad, err)
		}
	}
	if _, err := searchRisk(t, client, entryL, "se-4b"); err != nil {
		t.Error(err)
	}
}

func TestSlowAnswerOnASocketEndsWithTheClient(t *testing.T) {
	s := New(t)
	server := httptest.NewServer(s)
	s.Break("", 1, Fault{Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := socket{server: server}.RoundTrip(polite(t, "/v5/hashLists", nil).WithContext(ctx))
	if err == nil {
		t.Error("a slow answer came in time")
	}
	server.Close() // waits for the handler
	if got := s.Requests("list")[0]; !got.Cancelled {
		t.Errorf("noted as %+v, want cancelled", got)
	}
}

func TestJSONAnswers(t *testing.T) {
	rec := &recorder{}
	s := New(rec)
	s.AddThreat("b.example.com/", sbv5.ThreatType_MALWARE, sbv5.ThreatAttribute_CANARY)
	s.SetForeignHashes(make([]byte, 32))
	s.AnswerJSON(true)
	var answer sbv5.SearchHashesResponse
	if err := read(s, polite(t, "/v5/hashes:search", url.Values{"hashPrefixes": {"AAAAAA"}}), &answer); err == nil {
		t.Error("no JSON though it was switched on")
	}
	s.AnswerJSON(false)
	resp, err := s.RoundTrip(polite(t, "/v5/hashes:search", url.Values{"alt": {"json"}, "hashPrefixes": {"HTLFCA"}}))
	if err != nil || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatal(resp, err)
	}
	b, _ := io.ReadAll(resp.Body)
	var m sbv5.SearchHashesResponse
	if err := protojson.Unmarshal(b, &m); err != nil || len(m.FullHashes) != 2 {
		t.Errorf("got %s, %v", b, err)
	}
	wantOne(t, rec.take(), "alt=proto")
}

func TestLoad(t *testing.T) {
	s := New(t)
	load := func(text string) error { return Load(s, strings.NewReader(text)) }
	confirmed := func(expression string, want ...sbv5.ThreatType) {
		t.Helper()
		var got []sbv5.ThreatType
		for _, h := range s.search([][]byte{hash(expression)[:4]}).FullHashes {
			for _, d := range h.FullHashDetails {
				got = append(got, d.ThreatType)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", expression, got, want)
		}
	}
	contents := func(list string, expressions ...string) {
		t.Helper()
		var want [][]byte
		for _, e := range expressions {
			want = append(want, hash(e)[:listWidth(list)])
		}
		if got := s.lists[list].newest().entries; !slices.Equal(got, sorted(want)) {
			t.Errorf("list %s is %x, want %x", list, got, want)
		}
	}
	err := load("# comment\n\nse-4b evil.test # tail\nuws-4b evil.test/\nmw-4b harmless.test unconfirmed\ngc-32b good.test\n")
	if err != nil {
		t.Fatal(err)
	}
	confirmed("evil.test/", sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatType_UNWANTED_SOFTWARE)
	confirmed("harmless.test/")
	confirmed("good.test/")
	contents("se-4b", "evil.test/")
	contents("mw-4b", "harmless.test/")
	contents("gc-32b", "good.test/")

	if err := load("se-4b evil.test/path\npha-4b app.test\n"); err != nil {
		t.Fatal(err)
	}
	confirmed("evil.test/")
	confirmed("evil.test/path", sbv5.ThreatType_SOCIAL_ENGINEERING)
	confirmed("app.test/", sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION)
	contents("mw-4b")

	for text, want := range map[string]string{
		"\nse-4b\n":              "line 2: LIST EXPRESSION [unconfirmed] expected",
		"se a.test\n":            "line 1: list name ending in",
		"se-4b a.test confirmed": "line 1: unconfirmed or nothing expected",
	} {
		if err := load(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	contents("pha-4b", "app.test/")
}

func TestMisuseIsReported(t *testing.T) {
	rec := &recorder{}
	s := New(rec)
	s.Publish("se", nil)
	wantOne(t, rec.take(), "must end in")
	s.Publish("se-4b", [][]byte{{1}})
	wantOne(t, rec.take(), "want 4 to 32")
	s.Publish("se-4b", [][]byte{make([]byte, 33)})
	wantOne(t, rec.take(), "want 4 to 32")
	s.Publish("se-4b", [][]byte{make([]byte, 5)})
	wantNone(t, rec.take())
	if err := read(s, polite(t, "/v5/hashList/se-4b", nil), &sbv5.HashList{}); err == nil || err.Error() != "status 500" {
		t.Errorf("got %v, want status 500", err)
	}
	wantOne(t, rec.take(), "misuse")
}

func hash(expression string) []byte { return digest([]byte(expression)) }
