package updater_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/storetest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Whoever follows another process looks names up in joined lists, as that one does: each list apart
// costs a look-up of its own.
func TestAFollowerJoinsTheListsThatItTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		for _, list := range []string{"mw-4b", "se-4b"} {
			server.Publish(list, entriesOf(1, 2))
			server.SetMinimumWait(list, 20*time.Minute)
		}
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "mw-4b", "se-4b"), newRun(t, server, dir, "mw-4b", "se-4b")
		first.start()
		time.Sleep(time.Second / 2)
		second.start()
		time.Sleep(5 * time.Minute)
		second.checkHeld("the lists of the other one", "mw-4b", 1, 2)
		if second.database.Join() {
			t.Error("a follower has left its lists apart")
		}
		server.Publish("se-4b", entriesOf(3)) // only one of them
		time.Sleep(30 * time.Minute)
		second.checkHeld("an update of the other one", "se-4b", 3)
		second.checkHeld("the list that has not changed", "mw-4b", 1, 2)
		if second.database.Join() {
			t.Error("after an update a follower has left its lists apart")
		}
		first.stop()
		server.ClientStarted()
		time.Sleep(5 * time.Second)
		if second.database.Join() {
			t.Error("who takes over has left its lists apart")
		}
		second.stop()
		third := newRun(t, server, dir, "mw-4b", "se-4b")
		if !third.updater.Load() || !third.database.Join() {
			t.Error("Load leaves no lists apart: this test shows nothing")
		}
	})
}

// A follower may look while the other process has saved the first lists of a round only. It has the rest
// at one of its next looks, and each list is whole.
func TestAFollowerThatLooksInTheMiddleOfARoundGetsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("mw-4b", entriesOf(1))
		server.Publish("se-4b", entriesOf(1))
		server.SetMinimumWait("mw-4b", 20*time.Minute)
		server.SetMinimumWait("se-4b", 25*time.Minute) // the lists are asked for in rounds of their own
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "mw-4b", "se-4b"), newRun(t, server, dir, "mw-4b", "se-4b")
		first.start()
		time.Sleep(time.Second / 2)
		second.start()
		time.Sleep(5 * time.Minute)
		server.Publish("mw-4b", entriesOf(2))
		server.Publish("se-4b", entriesOf(2))
		time.Sleep(18 * time.Minute)
		second.checkHeld("the list that is due first", "mw-4b", 2)
		second.checkHeld("the list that is due later", "se-4b", 1)
		time.Sleep(5 * time.Minute)
		second.checkHeld("the list that was due later", "se-4b", 2)
		second.stop() // while it waits for the folder
		first.stop()
	})
}

// delays runs an updater many times and returns how long after its start, or
// with suspend after its wake-up, it asked for lists.
func delays(t *testing.T, suspend bool) (all []time.Duration) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			server := protocoltest.New(t)
			server.Publish("se-4b", nil)
			server.SetMinimumWait("se-4b", 5*time.Hour)
			client, err := protocol.NewV5(protocol.Config{UserAgent: "wake/1", Transport: server})
			must(t, err)
			schedule, _ := updater.NewSchedule(nil)
			u, err := updater.New(updater.Config{Source: client, Database: new(lookup.Database), Schedule: schedule, Lists: []string{"se-4b"}})
			must(t, err)
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

func TestStoresOnOneFolder(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		write := func(name string, change func([]byte) []byte) {
			path := filepath.Join(dir, name)
			raw, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(raw), 0o600)
			}
			must(t, err)
		}
		return storetest.Medium{
			Process: func(int) *updater.Store {
				store, err := updater.OpenStore(dir, storetest.Origin)
				must(t, err)
				return store
			},
			Lose: func() {
				for _, name := range append(storetest.Origin.Documents(), storetest.List+".list") {
					_ = os.Remove(filepath.Join(dir, name)) // not every test has all
				}
			},
			Damage:     func(document string) { write(document, func([]byte) []byte { return []byte("\xff garbage") }) },
			DamageList: func() { write(storetest.List+".list", func(raw []byte) []byte { raw[100] ^= 1; return raw }) },
		}
	})
}
