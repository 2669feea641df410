package protocoltest

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// Each fault must break a full update, a partial one, and the answer that nothing
// changed, or a test that survives it would prove nothing.
func TestEveryListFaultBreaksEveryAnswer(t *testing.T) {
	four := [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 9, 9, 9}}
	situations := map[string]func(s *Server, copies map[string]*copyOf){
		"full":       func(_ *Server, copies map[string]*copyOf) { clear(copies) },
		"full, one":  func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", four[:1]) },
		"full, none": func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", nil) },
		"unchanged":  func(*Server, map[string]*copyOf) {},
		"addition":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", append(four, []byte{0, 0, 0, 0})) },
		"removal":    func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", four[1:]) },
		"all gone":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", nil) },
	}
	wide := map[string]int{"x-8b": 8, "y-16b": 16, "z-32b": 32}
	for fault, f := range ListFaults() {
		if f.Delay > 0 {
			continue // a good answer in the end
		}
		for situation, prepare := range situations {
			t.Run(fault+"/"+situation, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New(t)
					s.Publish("se-4b", four)
					names := []string{"se-4b"}
					for name, width := range wide {
						names = append(names, name)
						s.Publish(name, [][]byte{make([]byte, width), append(make([]byte, width-1), 1)})
					}
					copies := map[string]*copyOf{}
					if bad, err := fetch(t, s, copies, nil, names...); err != nil || len(bad) > 0 {
						t.Fatal(bad, err)
					}
					time.Sleep(time.Hour)
					prepare(s, copies)
					s.Break("batchGet", 1, f)
					bad, err := fetch(t, s, copies, nil, names...)
					if f.breaksRequest(&query{method: methodBatchGet}) && err == nil {
						t.Error("the request did not fail")
					}
					if !f.breaksRequest(&query{method: methodBatchGet}) && (err != nil || len(bad) != len(names)) {
						t.Errorf("bad lists %v of %q, %v", bad, names, err)
					}
					time.Sleep(time.Hour) // and recovers
					if refusesLists(f.Status) {
						for _, name := range names {
							if bad, err := fetch(t, s, copies, nil, name); err != nil || len(bad) > 0 {
								t.Error(bad, err)
							}
						}
						time.Sleep(time.Hour)
					}
					if bad, err := fetch(t, s, copies, nil, names...); err != nil || len(bad) > 0 {
						t.Error(bad, err)
					}
				})
			})
		}
	}
}

func TestFrameFaultsBreakASingleList(t *testing.T) {
	for fault, f := range ListFaults() {
		if !f.breaksFrame(&query{method: methodGet}) {
			continue
		}
		s := New(t)
		s.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		s.Break("get", 1, f)
		var m sbv5.HashList
		if err := read(s, polite(t, "/v5/hashList/se-4b", nil), &m); err != nil || m.Name == "se-4b" {
			t.Errorf("%s: got %v, %v, want a wrong name", fault, &m, err)
		}
	}
}

func TestContentFaultOfOneListSparesTheOthers(t *testing.T) {
	s := New(t)
	s.Publish("se-4b", nil)
	s.Publish("mw-4b", nil)
	s.Break("", 1, Fault{WrongChecksum: true, List: "mw-4b"})
	if err := read(s, polite(t, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ"}}), &sbv5.SearchHashesResponse{}); err != nil {
		t.Errorf("the fault hit a search: %v", err)
	}
	bad, err := fetch(t, s, map[string]*copyOf{}, nil, "se-4b", "mw-4b")
	if err != nil || len(bad) != 1 || bad["mw-4b"] == nil {
		t.Errorf("bad lists %v, %v, want mw-4b", bad, err)
	}
}

func TestFaultsComeInOrderAndCanBeRepaired(t *testing.T) {
	s := New(&recorder{})
	s.Break("get", 1, Fault{Status: 418})
	s.Break("", 1, Fault{ShortHash: true})
	s.Break("list", 1, Fault{Status: 500})
	s.Break("", 2, Fault{Status: 429, RetryAfter: 1500 * time.Millisecond})
	for _, want := range []int{500, 429, 429, 200} {
		resp, err := s.RoundTrip(polite(t, "/v5/hashLists", nil))
		if err != nil || resp.StatusCode != want {
			t.Fatalf("got %v, %v, want %d", resp, err, want)
		}
		if got := resp.Header.Get("Retry-After"); want == 429 && got != "2" {
			t.Errorf("Retry-After %q, want 2", got)
		}
		resp.Body.Close()
	}
	s.Break("", 5, Fault{Garbage: true})
	s.Repair()
	if err := read(s, polite(t, "/v5/hashLists", nil), &sbv5.ListHashListsResponse{}); err != nil {
		t.Error(err)
	}
	if n := len(s.Requests("list")); n != 5 {
		t.Errorf("%d requests noted, want 5", n)
	}
}

func TestTransportFaultsInProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		s.Break("list", 1, Fault{CutBody: true})
		s.Publish("se-4b", nil)
		resp, err := s.RoundTrip(polite(t, "/v5/hashLists", nil))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || int64(len(b)) != resp.ContentLength/2 {
			t.Errorf("got %d of %d bytes and %v", len(b), resp.ContentLength, err)
		}
		s.Break("", 1, Fault{Delay: time.Minute})
		begin := time.Now()
		if err := read(s, polite(t, "/v5/hashLists", nil), &sbv5.ListHashListsResponse{}); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v, want a good answer after a minute", err, time.Since(begin))
		}
	})
}

func TestRefusals(t *testing.T) {
	s := New(&recorder{})
	s.Publish("se-4b", nil)
	tests := []struct {
		path  string
		query url.Values
		want  int
	}{
		{"/v5/elsewhere", nil, http.StatusNotFound},
		{"/v5/hashList/no-4b", nil, http.StatusBadRequest},
		{"/v5/hashLists:batchGet", nil, http.StatusBadRequest},
		{"/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}, "sizeConstraints.maxUpdateEntries": {"10"}}, http.StatusBadRequest},
		{"/v5/hashLists", url.Values{"pageToken": {"x"}}, http.StatusBadRequest},
		{"/v5/hashes:search", url.Values{"hashPrefixes": {"YWFh"}}, http.StatusBadRequest},
	}
	for _, tt := range tests {
		resp, err := s.RoundTrip(polite(t, tt.path, tt.query))
		if err != nil || resp.StatusCode != tt.want {
			t.Errorf("%s %v: got %v, %v, want %d", tt.path, tt.query, resp, err, tt.want)
		}
	}
}
