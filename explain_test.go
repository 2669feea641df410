package safebrowsing

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestAnAnswerThatHasExpiredRemainsForNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for until, want := range map[time.Duration]string{
			time.Minute:  "remaining=1m0s",
			0:            "remaining=0s",
			-time.Minute: "remaining=0s", // expired between the decision and its explanation
		} {
			e := policy.Explained{Decision: lookup.Decision{Verdict: lookup.Unsafe, Expires: time.Now().Add(until)}}
			if got := explanation(e, "", 0); !slices.Contains(got, want) {
				t.Errorf("%s: got %q, want %q", until, got, want)
			}
		}
	})
}
