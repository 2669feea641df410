package relay

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestTheLogTellsEachStateOfRedisOnce(t *testing.T) {
	dead := errors.New("connection refused")
	up, down := func(l *redisLog) { l.State(nil) }, func(l *redisLog) { l.State(dead) }
	back := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Back}) }
	lost := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Lost, Err: dead}) }
	newer := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Newer, Holder: "2 v9"}) }
	short, long := func(*redisLog) { time.Sleep(8 * time.Second) }, func(*redisLog) { time.Sleep(time.Minute) }
	const works, gone, slow, future = "This relay shares lists, clocks, answers and limits", "Cannot use Redis at r:1: connection", "for requests of clients", "newer format"
	for name, test := range map[string]struct {
		steps []func(*redisLog)
		want  []string
	}{
		"it works":                           {[]func(*redisLog){up, long, back, long}, []string{works}},
		"it works, in the other order":       {[]func(*redisLog){back, up, long}, []string{works}},
		"requests find the loss first":       {[]func(*redisLog){up, back, down, short, lost, long}, []string{works, gone}},
		"lists find the loss first":          {[]func(*redisLog){up, back, lost, short, down, long}, []string{works, gone}},
		"only requests find it slow":         {[]func(*redisLog){up, back, down, long, up, long}, []string{works, slow, works}},
		"slow for a moment":                  {[]func(*redisLog){up, back, down, short, up, long}, []string{works}},
		"slow, then lost":                    {[]func(*redisLog){up, back, down, long, lost, long}, []string{works, slow, gone}},
		"lists find first that it works":     {[]func(*redisLog){down, lost, long, back, short, short, up, long}, []string{gone, works}},
		"requests find first that it works":  {[]func(*redisLog){down, lost, long, up, short, back, long}, []string{gone, works}},
		"works again for lists, but is slow": {[]func(*redisLog){down, lost, back, long}, []string{gone, slow}},
		"newer data":                         {[]func(*redisLog){up, newer, long}, []string{future}},
		"lost, then newer":                   {[]func(*redisLog){down, lost, up, newer, long}, []string{gone, future}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			synctest.Test(t, func(t *testing.T) {
				l := &redisLog{fleet: true}
				l.target.Addresses = []string{"r:1"}
				for _, step := range test.steps {
					step(l)
				}
				synctest.Wait()
				l.close()
			})
			got := lines.About("Redis")
			if len(got) != len(test.want) {
				t.Fatalf("Expected %q, got %q", test.want, got)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("Expected %q, got %q", test.want, got)
				}
			}
		})
	}
}

// A relay whose clock is wrong by more than the life of answers shares none: see sharing.
func TestTheLogTellsOfAClockThatIsWrongOnce(t *testing.T) {
	const again = "[INFO] plugin/safebrowsing: The clock of this machine agrees with the clock of Redis at r:1 again"
	differs := func(by string) string {
		return "[WARNING] plugin/safebrowsing: The clock of this machine is " + by + " the clock of Redis at r:1. Until they differ by less than 2 seconds, this relay and others ask the server about more names, since each may take answers of the other for older than they are. Set the clocks of all relays and of Redis by NTP: \"chronyc tracking\" shows whether one is"
	}
	for name, test := range map[string]struct {
		ahead []time.Duration
		want  []string
	}{
		"right":            {[]time.Duration{0, 4 * time.Second, -4 * time.Second}, nil},
		"ahead":            {[]time.Duration{time.Hour, time.Hour + time.Second, 3 * time.Second}, []string{differs("1h0m0s ahead of")}},
		"behind":           {[]time.Duration{0, -90 * time.Second}, []string{differs("1m30s behind")}},
		"right in the end": {[]time.Duration{6 * time.Second, time.Second, 0, -time.Minute}, []string{differs("6s ahead of"), again, differs("1m0s behind")}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			l := new(redisLog)
			l.target.Addresses = []string{"r:1"}
			for _, ahead := range test.ahead {
				l.clock(ahead)
			}
			got := lines.About("clock")
			if len(got) != len(test.want) {
				t.Fatalf("Expected %q, got %q", test.want, got)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("Expected %q, got %q", want, got[i])
				}
			}
		})
	}
}
