package updater_test

import (
	"context"
	"errors"
	"maps"
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

// A follower looks names up in joined lists, too. It may look while only the first lists are saved, and has the rest soon after.
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
		testkit.Equal(t, "Load leaves lists apart, or this test shows nothing", third.updater.Load() && third.database.Join(), true)
	})
}

func TestFirstContactIsAtARandomTimeWithinAMinuteAfterStartAndWakeUp(t *testing.T) {
	var starts, wakes []time.Duration
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			server := serverOf(t, 5*time.Hour, held{"se-4b": nil})
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
			starts, wakes = append(starts, requests[0].Time.Sub(begun)), append(wakes, requests[1].Time.Sub(woken))
		})
	}
	wantSpread(t, starts)
	wantSpread(t, wakes)
}

// wantSpread checks that delays are in [0, 1 min), and that each sixth of it has its share of 200, with a probability beyond doubt.
func wantSpread(t *testing.T, delays []time.Duration) {
	t.Helper()
	sixths := make(map[time.Duration]int)
	for _, d := range delays {
		testkit.Between(t, "the first contact is after", d, 0, time.Minute-1)
		sixths[d/(10*time.Second)]++
	}
	testkit.Equal(t, "sixths of the minute", len(sixths), 6)
	testkit.Between(t, "the fewest first contacts in one", slices.Min(slices.Collect(maps.Values(sixths))), 5, len(delays))
}

func TestStoresOnOneFolder(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		write := func(name string, change func([]byte) []byte) {
			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, change([]byte(testkit.Read(t, path))), 0o600))
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
		f(t, serverOf(t, time.Hour, held{"se-4b": {1, 2}}), dir)
	})
}

func TestOnceFetchesWhatIsDueAndRefusesUntilThen(t *testing.T) {
	inFolder(t, func(t *testing.T, server *protocoltest.Server, dir string) {
		server.Publish("mw-4b", entriesOf(7))
		server.SetMinimumWait("mw-4b", 2*time.Hour)
		begin := time.Now()
		r := newRun(t, server, dir, "se-4b", "mw-4b")
		must(t, r.updater.Once(t.Context()))
		testkit.Between(t, "it takes", time.Since(begin), 0, time.Minute-1)
		entries := mapped(r.reported(updater.ListUpdated), func(e updater.Event) int { return e.Entries })
		testkit.Equal(t, "entries of the lists that are updated", entries, []int{2, 1})
		all, err := updater.Status(dir)
		must(t, err)
		names := mapped(all, func(s updater.ListStatus) string { return s.Name })
		testkit.Equal(t, "lists", names, []string{"mw-4b", "se-4b"})
		for i, s := range all {
			testkit.Equal(t, s.Name, []any{s.Entries, s.Widths, s.Origin, s.Err, s.Failures, time.Since(s.Updated), time.Until(s.NotBefore)},
				[]any{1 + i, []int{4}, "test", nil, 0, time.Duration(0), time.Duration(2-i) * time.Hour})
			testkit.Equal(t, s.Name+" has no version, checksum or bytes", len(s.Version) == 0 || s.Checksum == [32]byte{} || s.Bytes == 0, false)
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
		must(t, r.updater.Once(t.Context()))
		testkit.Equal(t, "unchanged lists, and requests", [2]int{r.times(updater.ListUnchanged), len(server.Requests("update"))}, [2]int{1, 2})
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
