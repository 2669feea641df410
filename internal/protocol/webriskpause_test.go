package protocol

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// searches is a client of Web Risk that keeps the rules for searches, and its server.
type searches struct {
	lookup.Searcher
	schedule *updater.Schedule
	server   *protocoltest.Server
}

func searchesOfWebRisk(t *testing.T) *searches {
	t.Helper()
	server := riskServer(t)
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := newWebRisk(t, server, "se-4b")
	if err := firstFetchError(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	rules := DialectWebRisk.SearchRules
	rules.FirstContact = func() time.Duration { return 0 }
	return &searches{updater.Pace(client, schedule, rules, func(updater.Event) {}), schedule, server}
}

// search searches once and returns how long the next search has to wait.
func (s *searches) search(t *testing.T) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _ = s.Search(ctx, []lookup.Prefix{"\x00\x00\x00\x00"})
	return max(0, time.Until(s.schedule.SearchHold().Until))
}

// Google Cloud's service level agreements, "Back-off Requirements".
func TestSearchesOfWebRiskBackOffFromASecondTo32(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := searchesOfWebRisk(t)
		s.server.Break("searchOne", 8, protocoltest.Fault{Status: 503})
		for i, least := range []time.Duration{1, 2, 4, 8, 16, 32, 32, 32} {
			least *= time.Second
			wait := s.search(t)
			if wait < least || wait > least+least/4 {
				t.Fatalf("after %d failures %s to wait, want %s and a quarter at most", i+1, wait, least)
			}
			if s.search(t); len(s.server.Requests("searchOne")) != i+1 {
				t.Fatal("a search was sent in the back-off")
			}
			time.Sleep(wait)
		}
		if wait := s.search(t); wait > 0 {
			t.Errorf("%s to wait after a success", wait)
		}
	})
}

// A refusal does not heal within seconds, and counts by itself: the errors before it must not
// make it a day.
func TestARefusedSearchOfWebRiskBacksOffForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := searchesOfWebRisk(t)
		s.server.Break("searchOne", 9, protocoltest.Fault{Status: 500})
		s.server.Break("searchOne", 1, protocoltest.Fault{Status: 429})
		s.server.Break("searchOne", 1, protocoltest.Fault{Status: 403})
		for range 9 {
			time.Sleep(s.search(t))
		}
		for _, least := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
			wait := s.search(t)
			if wait < least || wait > 2*least {
				t.Errorf("%s to wait, want %s to %s", wait, least, 2*least)
			}
			time.Sleep(wait)
		}
		if wait := s.search(t); wait > 0 {
			t.Errorf("%s to wait after a success", wait)
		}
	})
}
