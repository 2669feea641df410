package protocol

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A malformed answer to a search may have a minimum wait.
func TestTheMinimumWaitOfAMalformedSearchHolds(t *testing.T) {
	tr := &countedAnswers{body: marshal(t, &sbv4.FindFullHashesResponse{
		Matches:             []*sbv4.ThreatMatch{{Threat: &sbv4.ThreatEntry{Hash: []byte("short")}}},
		MinimumWaitDuration: durationpb.New(6 * time.Hour),
	})}
	c, err := NewV4(Config{UserAgent: "a/1", Transport: tr}, []string{"se-4b"}, func() [][]byte { return nil })
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		schedule, _ := updater.NewSchedule(nil)
		s := updater.Pace(c, schedule, updater.SearchRules{Backoff: updater.Strict}, func(updater.Event) {})
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		time.Sleep(time.Hour)
		s.Search(t.Context(), []lookup.Prefix{"abcd"})
		if len(tr.asked) != 1 {
			t.Errorf("asked again after %s, minimum wait was 6h", tr.asked[1].Sub(tr.asked[0]))
		}
	})
}
