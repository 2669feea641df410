package updater_test

import (
	"context"
	"errors"
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
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Whoever follows another process looks names up in joined lists, as that one does: each list apart costs a look-up of
// its own. A follower may look while the other process has saved the first lists only. It has the rest at one of its next looks.
func TestAFollowerJoinsTheListsThatItTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		for list, wait := range map[string]time.Duration{"mw-4b": 20 * time.Minute, "se-4b": 25 * time.Minute} { // in rounds of their own
			server.Publish(list, entriesOf(1, 2))
			server.SetMinimumWait(list, wait)
		}
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "mw-4b", "se-4b"), newRun(t, server, dir, "mw-4b", "se-4b")
		holds := func(when string, mw, se []byte) {
			t.Helper()
			second.checkHeld(when, held{"mw-4b": mw, "se-4b": se})
			testkit.Equal(t, when+": lists were left apart", second.database.Join(), false)
		}
		first.start()
		time.Sleep(time.Second / 2)
		second.start()
		time.Sleep(5 * time.Minute)
		holds("the lists of the other one", []byte{1, 2}, []byte{1, 2})
		testkit.Equal(t, "told that the folder is in use", []int{first.times(updater.LockBusy), second.times(updater.LockBusy)}, []int{0, 1})
		server.Publish("mw-4b", entriesOf(3))
		server.Publish("se-4b", entriesOf(4))
		time.Sleep(18 * time.Minute)
		holds("when the first list was due", []byte{3}, []byte{1, 2})
		asked := server.Requests("update")
		for _, e := range second.reported(updater.Followed)[second.times(updater.Followed)-2:] {
			request, wait := asked[1], 20*time.Minute
			if e.List == "se-4b" {
				request, wait = asked[0], 25*time.Minute
			}
			testkit.Equal(t, e.List+" is said to be updated late by", e.Updated.Sub(request.Answered), 0)
			testkit.Equal(t, e.List+" is said to be due in", e.Due.Sub(request.Answered), wait)
		}
		time.Sleep(5 * time.Minute)
		holds("when the other one was due", []byte{3}, []byte{4})
		first.stop()
		server.ClientStarted()
		server.Publish("mw-4b", entriesOf(5))
		time.Sleep(5 * time.Second)
		holds("after it has taken over", []byte{3}, []byte{4})
		time.Sleep(30 * time.Minute)
		holds("later", []byte{5}, []byte{4})
		second.stop()
		third := newRun(t, server, dir, "mw-4b", "se-4b")
		if !third.updater.Load() || !third.database.Join() {
			t.Error("Load leaves no lists apart: this test shows nothing")
		}
	})
}

func TestFirstContactIsAtARandomTimeWithinAMinuteAfterStartAndWakeUp(t *testing.T) {
	var starts, wakes []time.Duration
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			server := protocoltest.New(t)
			server.Publish("se-4b", nil)
			server.SetMinimumWait("se-4b", 5*time.Hour)
			client, err := protocol.NewV5(protocol.Config{UserAgent: "wake/1", Transport: server})
			must(t, err)
			r := newRunOf(t, client, nil, "se-4b")
			begun, woken := time.Now(), time.Time{}
			r.updater.SetSleep(func(ctx context.Context, d time.Duration) error {
				if woken.IsZero() && len(server.Requests("")) == 1 {
					err := updater.Sleep(ctx, d+9*time.Hour) // the machine is suspended
					woken = time.Now()
					return err
				}
				return updater.Sleep(ctx, d)
			}, time.Minute)
			r.start()
			time.Sleep(12 * time.Hour)
			r.stop()
			requests := server.Requests("update")
			if len(requests) < 2 {
				t.Fatalf("got %d requests, want at least 2", len(requests))
			}
			starts, wakes = append(starts, requests[0].Time.Sub(begun)), append(wakes, requests[1].Time.Sub(woken))
		})
	}
	wantSpread(t, starts)
	wantSpread(t, wakes)
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
	testkit.Between(t, "the fewest first contacts in a sixth of the minute", slices.Min(sixths[:]), 5, len(delays))
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
			Process: func(int) *updater.Store { return openStore(t, dir, storetest.Origin) },
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

// inFolder runs a test in a bubble with a server of one list and a folder.
func inFolder(t *testing.T, f func(t *testing.T, server *protocoltest.Server, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("se-4b", entriesOf(1, 2))
		server.SetMinimumWait("se-4b", time.Hour)
		f(t, server, dir)
	})
}

func TestOnceFetchesWhatIsDueAndRefusesUntilThen(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		server.Publish("mw-4b", entriesOf(7))
		server.SetMinimumWait("mw-4b", 2*time.Hour)
		begin := time.Now()
		r := newRun(t, server, dir, "se-4b", "mw-4b")
		must(t, r.updater.Once(t.Context()))
		if got := r.reported(updater.ListUpdated); len(got) != 2 || got[0].Entries != 2 || time.Since(begin) >= time.Minute {
			t.Errorf("after %s reported %+v, want an update of 2 entries in less than a minute", time.Since(begin), got)
		}
		all, err := updater.Status(dir)
		if err != nil || len(all) != 2 {
			t.Fatalf("got %+v, %v, want two lists", all, err)
		}
		for i, want := range []struct {
			name    string
			entries int
			wait    time.Duration
		}{{"mw-4b", 1, 2 * time.Hour}, {"se-4b", 2, time.Hour}} {
			s := all[i]
			if s.Name != want.name || s.Entries != want.entries || !slices.Equal(s.Widths, []int{4}) || s.Origin != "test" || s.Err != nil ||
				len(s.Version) == 0 || s.Checksum == [32]byte{} || s.Bytes == 0 || s.Failures != 0 ||
				!s.Updated.Equal(time.Now()) || !s.NotBefore.Equal(time.Now().Add(want.wait)) {
				t.Errorf("got %+v, want %+v", s, want)
			}
		}
		until := time.Now().Add(time.Hour)
		server.ClientStarted()
		r = newRun(t, server, dir, "se-4b", "mw-4b")
		if notDue, ok := errors.AsType[*updater.NotDueError](r.updater.Once(t.Context())); !ok || !notDue.Until.Equal(until) {
			t.Errorf("got %v, want that nothing is due until %s", notDue, until)
		}
		r.checkHeld("though nothing is due", held{"se-4b": {1, 2}})
		time.Sleep(time.Hour)
		server.ClientStarted()
		if err := r.updater.Once(t.Context()); err != nil || r.times(updater.ListUnchanged) != 1 {
			t.Errorf("an hour later got %v, %+v, want that nothing has changed", err, r.reported(updater.ListUnchanged))
		}
		testkit.Equal(t, "requests", len(server.Requests("update")), 2)
	})
}

func TestOnceSendsNothing(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, server *protocoltest.Server, dir string){
		"while another one has the folder": func(t *testing.T, server *protocoltest.Server, dir string) {
			running := newRun(t, server, dir, "se-4b").started()
			synctest.Wait()
			for who, r := range map[string]*run{"another one": newRun(t, server, dir, "se-4b"), "the running updater itself": running} {
				testkit.Is(t, who, r.updater.Once(t.Context()), updater.ErrBusy)
			}
			running.stop()
		},
		"when its context has ended": func(t *testing.T, server *protocoltest.Server, dir string) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := newRun(t, server, dir, "se-4b")
			for _, run := range []func(context.Context) error{r.updater.Once, r.updater.Run} {
				testkit.Is(t, "its end", run(ctx), context.Canceled)
			}
		},
		"where it cannot be noted": func(t *testing.T, server *protocoltest.Server, dir string) {
			for _, name := range []string{"schedule.json", "schedule.json.damaged"} { // folders in the way stop even root
				must(t, os.MkdirAll(filepath.Join(dir, name, "in the way"), 0o700))
			}
			testkit.WantError(t, newRun(t, server, dir, "se-4b").updater.Once(t.Context()))
			must(t, os.RemoveAll(filepath.Join(dir, "schedule.json")))
			time.Sleep(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
				test(t, server, dir)
				testkit.Equal(t, "requests", len(server.Requests("")), 0)
				testkit.Is(t, "the folder was not released", newRun(t, server, dir, "se-4b").updater.Once(t.Context()), nil)
			})
		})
	}
}
