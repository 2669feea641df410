package files

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitGivesUpAfterTheLimit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		ended bool
		waits time.Duration
	}{
		{"at once", 0, true, 0},
		{"a slow disk", WaitLimit / 2, true, WaitLimit / 2},
		{"a disk that hangs", time.Hour, false, WaitLimit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				ended := Wait(func() { time.Sleep(tc.takes) })
				if waited := time.Since(begun); ended != tc.ended || waited != tc.waits {
					t.Errorf("got %v after %s, want %v after %s", ended, waited, tc.ended, tc.waits)
				}
				time.Sleep(tc.takes)
				synctest.Wait()
				if n := hung.Load(); n != 0 {
					t.Errorf("%d waits are still counted after their end", n)
				}
			})
		})
	}
}

// Many things end one after the other, and all of them may wait for the disk that hangs.
func TestOnlyTheFirstOfManyWaitsHasTheWholeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for range 5 {
			if Wait(func() { time.Sleep(time.Hour) }) {
				t.Error("Expected a wait to be given up")
			}
		}
		if got, want := time.Since(begun), WaitLimit+4*hurried(); got != want {
			t.Errorf("got %s for 5 waits, want %s", got, want)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		begun = time.Now()
		Wait(func() { time.Sleep(WaitLimit / 2) })
		if got := time.Since(begun); got != WaitLimit/2 {
			t.Errorf("got %s when the disk answers again, want %s", got, WaitLimit/2)
		}
	})
}
