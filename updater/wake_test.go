package updater_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// delays runs an updater many times and returns how long after its start, or
// with suspend after its wake-up, it asked for lists.
func delays(t *testing.T, suspend bool) (all []time.Duration) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			server := protocoltest.New(t)
			server.Publish("se-4b", nil)
			server.SetMinimumWait("se-4b", 5*time.Hour)
			client, err := protocol.NewV5(protocol.Config{UserAgent: "wake/1", Transport: server})
			if err != nil {
				t.Fatal(err)
			}
			schedule, _ := updater.NewSchedule(nil)
			u, err := updater.New(updater.Config{Source: client, Database: new(lookup.Database), Schedule: schedule, Lists: []string{"se-4b"}})
			if err != nil {
				t.Fatal(err)
			}
			from, sleeps := time.Now(), suspend
			u.SetSleep(func(ctx context.Context, d time.Duration) error {
				if sleeps && len(server.Requests("")) == 1 {
					sleeps = false
					err := updater.Sleep(ctx, d+9*time.Hour)
					from = time.Now()
					return err
				}
				return updater.Sleep(ctx, d)
			}, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- u.Run(ctx) }()
			wanted := 1
			if suspend {
				wanted = 2
			}
			time.Sleep(12 * time.Hour)
			cancel()
			<-done
			requests := server.Requests("update")
			if len(requests) < wanted {
				t.Fatalf("got %d requests, want at least %d", len(requests), wanted)
			}
			all = append(all, requests[wanted-1].Time.Sub(from))
		})
	}
	return all
}

func TestFirstContactIsAtARandomTimeWithinAMinuteAfterStart(t *testing.T) {
	testkit.Long(t)
	wantSpread(t, delays(t, false))
}

func TestFirstContactIsAtARandomTimeWithinAMinuteAfterWakeUp(t *testing.T) {
	wantSpread(t, delays(t, true))
}

// wantSpread checks that delays are in [0, 1 min) and not alike: each sixth of
// the minute has its share of 200 with a probability beyond doubt.
func wantSpread(t *testing.T, delays []time.Duration) {
	t.Helper()
	var sixths [6]int
	for _, d := range delays {
		if d < 0 || d >= time.Minute {
			t.Fatalf("first contact after %s, want less than a minute", d)
		}
		sixths[d/(10*time.Second)]++
	}
	if slices.Min(sixths[:]) < 5 {
		t.Errorf("first contacts by sixths of the minute: %v, want them spread", sixths)
	}
}
