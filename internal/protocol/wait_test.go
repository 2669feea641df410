package protocol

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

type countedAnswers struct {
	body  []byte
	asked []time.Time
}

func (r *countedAnswers) RoundTrip(q *http.Request) (*http.Response, error) {
	r.asked = append(r.asked, time.Now())
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, ContentLength: -1,
		Body: io.NopCloser(bytes.NewReader(r.body)), Request: q}, nil
}

// A long list that is refused early has a minimum wait too.
func TestTheMinimumWaitOfAListRefusedEarlyHolds(t *testing.T) {
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			if stream {
				streamAll(t)
			}
			m, _ := fullList(t, "se-4b", 5000)
			m.MinimumWaitDuration = durationpb.New(6 * time.Hour)
			tr := &countedAnswers{body: inOrder(t, m)}
			c, err := NewV5(Config{UserAgent: "a/1", Transport: tr})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				schedule, _ := updater.NewSchedule(nil)
				u, err := updater.New(updater.Config{Source: c, Database: new(lookup.Database), Schedule: schedule, Lists: []string{"se-4b"},
					MaxEntries: 1024, FirstContact: func() time.Duration { return 0 }})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Hour)
				defer cancel()
				u.Run(ctx)
				if len(tr.asked) < 2 {
					t.Fatal(tr.asked)
				}
				if gap := tr.asked[1].Sub(tr.asked[0]); gap < 6*time.Hour {
					t.Errorf("asked again after %s, minimum wait was 6h", gap)
				}
			})
		})
	}
}
