package protocol

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// What is no answer at all fails the request, so that the back-off starts.
func TestWebRiskAnswersThatAreNoneFailTheRequest(t *testing.T) {
	for name, transport := range map[string]answering{
		"no protobuf":      always(binaryForm, []byte{0xff}),
		"another JSON":     always(jsonForm, []byte(`{"responseType":[]}`)),
		"JSON cut":         always(jsonForm, []byte(`{"responseType":"RESET"`)),
		"a time in words":  always(jsonForm, []byte(`{"recommendedNextDiff":"soon"}`)),
		"another type":     always("text/html", []byte("<html>")),
		"more than 32 MiB": always(binaryForm, make([]byte, 32<<20+1)),
		"status 503":       func(r *http.Request) (*http.Response, error) { return response(r, 503, nil, nil), nil },
		"a redirect": func(r *http.Request) (*http.Response, error) {
			return response(r, 302, http.Header{"Location": {"https://b.example"}}, nil), nil
		},
		"no connection": func(r *http.Request) (*http.Response, error) { return nil, errors.New("no route") },
		"unknown compressor": func(r *http.Request) (*http.Response, error) {
			return response(r, 200, http.Header{"Content-Encoding": {"br"}}, nil), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWebRisk(t, transport, "se-4b")
			_, err := c.Fetch(t.Context(), []updater.Want{{List: "se-4b"}}, func(int, *updater.Update) { t.Error("taken") })
			if err == nil || !strings.HasPrefix(err.Error(), "fetching list se-4b: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A list of seven million entries may come raw: 28 MB.
func TestWebRiskAnswersMayHave32MiB(t *testing.T) {
	testkit.Long(t)
	for entries, want := range map[int]string{7_000_000: "", 8_400_000: "at most 33554432 are allowed"} {
		m := riskUpdate(riskReset, "")
		m.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{{PrefixSize: 4, RawHashes: make([]byte, 4*entries)}}}
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		taken := 0
		_, err = newWebRisk(t, always(binaryForm, body)).Fetch(t.Context(), []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) { taken = added(u) })
		if want == "" && (err != nil || taken != entries) || want != "" && (!errors.Is(err, updater.ErrMalformed) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d entries: took %d, %v", entries, taken, err)
		}
	}
}

// The lists before the one that fails have been taken, those behind it are not asked
// for.
func TestWebRiskFetchStopsAtTheFirstFailure(t *testing.T) {
	asked := 0
	c := newWebRisk(t, answering(func(r *http.Request) (*http.Response, error) {
		if asked++; asked == 3 {
			return response(r, 429, nil, nil), nil
		}
		return always(binaryForm, unhex(t, wireReset))(r)
	}))
	var taken []int
	_, err := c.Fetch(t.Context(), []updater.Want{{List: "mw-4b"}, {List: "se-ext-4b"}, {List: "se-4b"}, {List: "uws-4b"}}, func(i int, u *updater.Update) {
		if taken = append(taken, i); u.Err != nil {
			t.Error(u.Err)
		}
	})
	if status, ok := errors.AsType[*updater.StatusError](err); !ok || status.Code != 429 || !strings.Contains(err.Error(), "list se-4b") || asked != 3 || !slices.Equal(taken, []int{0, 1}) {
		t.Errorf("%d requests, took %v, %v", asked, taken, err)
	}
}

func TestWebRiskFetchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newWebRisk(t, always(binaryForm, unhex(t, wireReset)))
	_, err := c.Fetch(ctx, []updater.Want{{List: "mw-4b"}}, func(_ int, u *updater.Update) {
		cancel()
		if _, _, err := updater.Apply(updater.List{Name: "mw-4b"}, u, 1000); !errors.Is(err, context.Canceled) {
			t.Errorf("applied with %v", err)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context: the update is not wrong", err)
	}
}

var _ updater.OneByOne = (*WebRisk)(nil)

// The updater asks for each list by itself, when the answer before has recommended it,
// and keeps what was answered before a failure.
func TestWebRiskListsAreFetchedEachAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		begun := time.Now()
		c := newWebRisk(t, answering(func(r *http.Request) (*http.Response, error) {
			threat := r.URL.Query().Get("threatType")
			asked = append(asked, threat+" "+time.Since(begun).String())
			if time.Since(begun) > 150*time.Minute && threat == "SOCIAL_ENGINEERING" {
				return response(r, 503, nil, nil), nil
			}
			m := riskUpdate(riskReset, "05000000")
			m.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 0, 0, "")}
			m.RecommendedNextDiff = timestamppb.New(time.Now().Add(map[string]time.Duration{"MALWARE": 2 * time.Hour}[threat] + time.Hour))
			body, err := proto.Marshal(m)
			if err != nil {
				t.Error(err)
			}
			return always(binaryForm, body)(r)
		}))
		database := new(lookup.Database)
		schedule, _ := updater.NewSchedule(nil)
		u, err := updater.New(updater.Config{Source: c, Database: database, Schedule: schedule, Lists: []string{"mw-4b", "se-4b"},
			FirstContact: func() time.Duration { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour+time.Minute)
		defer cancel()
		u.Run(ctx)
		want := []string{"MALWARE 0s", "SOCIAL_ENGINEERING 0s", "SOCIAL_ENGINEERING 1h0m0s", "SOCIAL_ENGINEERING 2h0m0s", "MALWARE 3h0m0s", "SOCIAL_ENGINEERING 3h0m0s"}
		if !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
		if hold := schedule.FetchHold([]string{"mw-4b"}); !hold.Until.Equal(begun.Add(6 * time.Hour)) {
			t.Errorf("the hold of the list that was answered is %+v, want it to end after six hours", hold)
		}
		if hold := schedule.FetchHold([]string{"se-4b"}); hold.Failures != 1 || !strings.Contains(hold.Cause, "503") {
			t.Errorf("the back-off is %+v", hold)
		}
	})
}
