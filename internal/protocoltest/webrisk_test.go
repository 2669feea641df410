package protocoltest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// shapeOf tells how an answer of computeDiff is written.
func shapeOf(m *wrv1.ComputeThreatListDiffResponse) string {
	shape := m.ResponseType.String()
	if m.Additions.GetRiceHashes() != nil {
		shape += " rice"
	}
	for _, raw := range m.Additions.GetRawHashes() {
		shape += fmt.Sprintf(" raw%d", raw.PrefixSize)
	}
	if m.Removals.GetRiceIndices() != nil {
		shape += " -rice"
	}
	if m.Removals.GetRawIndices() != nil {
		shape += " -raw"
	}
	return shape
}

func TestDiffsLeadToTheNewestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		rng := rand.New(rand.NewPCG(5, 6))
		entries := map[string][][]byte{}
		copies := map[string]*copyOf{}
		for round := range 80 {
			s.SetRawAdditions(round%3 == 1)
			s.SetRawRemovals(round%5 == 1)
			s.AnswerJSON(round%4 == 1)
			for list := range riskNames {
				entries[list] = evolve(rng, 4, entries[list])
				if round%2 == 1 {
					entries[list] = append(entries[list], randomEntries(rng, 4+rng.IntN(29), 20)...)
				}
				s.Publish(list, entries[list])
				if round%20 == 19 {
					s.ForgetVersions(list)
				}
				if bad, err := diffRisk(t, s, copies, list); err != nil || bad != nil {
					t.Fatalf("round %d: %v, %v", round, bad, err)
				}
				if !slices.Equal(copies[list].entries, sorted(entries[list])) {
					t.Fatalf("round %d: %s is not the newest version", round, list)
				}
			}
			time.Sleep(30 * time.Minute)
		}
	})
}

func TestDiffAnswers(t *testing.T) {
	three := [][]byte{[]byte("aaaa"), []byte("bbbbb"), []byte("cccccc")}
	tests := []struct {
		name   string
		setUp  func(s *Server)
		change func(values url.Values)
		reset  string // shape of the first answer
		diff   string // of one that removes aaaa and adds dddd
	}{
		{"rice", func(*Server) {}, nil, "RESET rice raw5 raw6", "DIFF rice -rice"},
		{"raw removals", func(s *Server) { s.SetRawRemovals(true) }, nil, "RESET rice raw5 raw6", "DIFF rice -raw"},
		{"raw additions", func(s *Server) { s.SetRawAdditions(true) }, nil, "RESET raw4 raw5 raw6", "DIFF raw4 -rice"},
		{"no rice", func(*Server) {}, func(values url.Values) { values["constraints.supportedCompressions"] = []string{"1"} },
			"RESET raw4 raw5 raw6", "DIFF raw4 -raw"},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			s := New(&recorder{})
			s.SetMinimumWait("", time.Hour)
			tt.setUp(s)
			s.Publish("se-4b", three)
			ask := func(token []byte) *wrv1.ComputeThreatListDiffResponse {
				values := diffValues("se-4b", token)
				if tt.change != nil {
					tt.change(values)
				}
				m := &wrv1.ComputeThreatListDiffResponse{}
				if err := readRisk(s, politeRisk(t, diffPath, values), m); err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				if got := m.RecommendedNextDiff.AsTime(); !got.Equal(time.Now().Add(time.Hour)) {
					t.Errorf("%s: next diff %v, want in an hour", tt.name, got)
				}
				return m
			}
			first := ask(nil)
			s.Publish("se-4b", append(three[1:], []byte("dddd")))
			second := ask(first.NewVersionToken)
			third := ask(second.NewVersionToken)
			for got, want := range map[*wrv1.ComputeThreatListDiffResponse]string{first: tt.reset, second: tt.diff, third: "DIFF"} {
				if shapeOf(got) != want {
					t.Errorf("%s: got %s, want %s", tt.name, shapeOf(got), want)
				}
			}
			if len(third.Checksum.Sha256) != 32 || string(third.NewVersionToken) != string(second.NewVersionToken) {
				t.Errorf("%s: unchanged list without checksum or with another token", tt.name)
			}
		})
	}
}

func TestALimitSplitsADiff(t *testing.T) {
	inBubble(t, "three steps", func(b *bench) {
		var entries [][]byte
		for _, p := range numbered(2500) {
			entries = append(entries, []byte(p))
		}
		b.Publish("se-4b", entries)
		var copyNow *copyOf
		for step, want := range []int{1024, 2048, 2500} {
			var token []byte
			if copyNow != nil {
				token = copyNow.version
			}
			values := diffValues("se-4b", token)
			values.Set("constraints.maxDiffEntries", "1024")
			var m wrv1.ComputeThreatListDiffResponse
			err := readRisk(b, politeRisk(b.T, diffPath, values), &m)
			if err == nil {
				copyNow, err = applyRisk(copyNow, &m)
			}
			if err != nil || len(copyNow.entries) != want || (m.RecommendedNextDiff == nil) != (step < 2) {
				b.Fatalf("step %d: %v, %v entries, want %d; next diff %v", step, err, copyNow, want, m.RecommendedNextDiff)
			}
		}
		wantNone(b.T, b.violations.take())
		if got := b.Requests("computeDiff")[1]; got.MaxUpdate != 1024 || !slices.Equal(got.Lists, []string{"se-4b"}) || len(got.Versions) != 1 {
			b.Errorf("noted as %+v", got)
		}
	})
}

func TestWebRiskTakesEveryBase64AndEnum(t *testing.T) {
	token := []byte(nil)
	prefix := "\xfb\xff\xbe\xff"
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		s.Publish("se-4b", [][]byte{[]byte(prefix)})
		for i, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			values := diffValues("se-4b", nil)
			values.Set("threatType", []string{"SOCIAL_ENGINEERING", "2"}[i%2])
			values["constraints.supportedCompressions"] = [][]string{{"RAW", "2"}, {"1", "RICE"}}[i%2]
			if token != nil {
				values.Set("versionToken", encoding.EncodeToString(token))
			}
			var m wrv1.ComputeThreatListDiffResponse
			if err := readRisk(s, politeRisk(t, diffPath, values), &m); err != nil {
				t.Fatal(err)
			}
			if got, want := m.ResponseType.String(), []string{"RESET", "DIFF"}[min(i, 1)]; got != want {
				t.Errorf("answer %d: %s, want %s", i, got, want)
			}
			token = m.NewVersionToken
			search := url.Values{"hashPrefix": {encoding.EncodeToString([]byte(prefix))}, "threatTypes": {values.Get("threatType")}}
			if err := readRisk(s, politeRisk(t, searchOnePath, search), &wrv1.SearchHashesResponse{}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestFormatOfWebRiskAnswers(t *testing.T) {
	const protobuf, inJSON = "application/x-protobuf", "application/json"
	tests := []struct {
		name, accept, query string
		jsonOnly            bool
		want                string
	}{
		{"default", "", "", false, inJSON},
		{"accepted", protobuf, "", false, protobuf},
		{"alt", "", "alt=proto", false, protobuf},
		{"$alt", "", "$alt=proto", false, protobuf},
		{"alt before accepted", protobuf, "alt=json", false, inJSON},
		{"JSON only", protobuf, "alt=proto", true, inJSON},
	}
	for _, tt := range tests {
		s := New(t)
		s.Publish("se-4b", nil)
		s.SetMinimumWait("se-4b", time.Hour)
		s.AnswerJSON(tt.jsonOnly)
		r := politeRisk(t, diffPath, diffValues("se-4b", nil))
		r.Header.Set("Accept", tt.accept)
		r.URL.RawQuery += "&" + tt.query
		resp, err := s.RoundTrip(r)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != tt.want {
			t.Fatalf("%s: got %v, %v, want %s", tt.name, resp, err, tt.want)
		}
		if tt.want == inJSON {
			var m struct{ ResponseType, NewVersionToken, RecommendedNextDiff string }
			if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || m.ResponseType != "RESET" || !strings.HasSuffix(m.RecommendedNextDiff, "Z") ||
				!strings.HasPrefix(m.NewVersionToken, "++++") {
				t.Errorf("%s: got %+v, %v", tt.name, m, err)
			}
		}
		resp.Body.Close()
	}
}

func TestWebRiskAndSafeBrowsingAreApart(t *testing.T) {
	inBubble(t, "v5", func(b *bench) {
		b.Publish("se-ext-4b", nil)
		b.lists(nil, "se-ext-4b")
		if got := b.Requests("batchGet")[0].Status; got != 400 {
			b.Errorf("status %d, want 400", got)
		}
		var m sbv5.ListHashListsResponse
		if err := read(b, polite(b.T, "/v5/hashLists", nil), &m); err != nil || len(m.HashLists) != 2 {
			b.Errorf("lists %v, %v, want two", &m, err)
		}
	})
	inBubble(t, "versions are no tokens", func(b *bench) {
		b.lists(nil, "se-4b")
		var m wrv1.ComputeThreatListDiffResponse
		if err := readRisk(b, politeRisk(b.T, diffPath, diffValues("se-4b", b.version)), &m); err != nil || shapeOf(&m) != "RESET rice" {
			b.Errorf("got %s, %v, want a reset", shapeOf(&m), err)
		}
		wantOne(b.T, b.violations.take(), "never served")
	})
	s := New(t)
	if err := Load(s, strings.NewReader("se-ext-4b evil.example/\nse-ext-4b odd.example/ unconfirmed\n")); err != nil {
		t.Fatal(err)
	}
	bad, err := diffRisk(t, s, map[string]*copyOf{}, "se-ext-4b")
	if err != nil || bad != nil {
		t.Fatal(bad, err)
	}
	for name, want := range map[string]int{"evil.example/": 1, "odd.example/": 0} {
		h := hash(name)
		m, err := searchRisk(t, s, string(h[:4]), "se-ext-4b")
		if err != nil || len(m.Threats) != want {
			t.Errorf("%s: %v, %v, want %d threats", name, m, err, want)
		}
	}
}
