package prefixset

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// onCores gives the rest of a test this many cores.
func onCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestPauseLeavesHalfOfACoreToOthers(t *testing.T) {
	for _, test := range []struct {
		name  string
		cores int
		each  time.Duration // of work on lookEvery bytes
		least float64       // part of the time that is slept
		most  float64
		piece time.Duration // the longest work without a pause
	}{
		{"quick work", 1, 10 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery},
		{"slow work", 1, 200 * time.Microsecond, 0.45, 0.55, 2 * pauseEvery},
		{"very slow work", 1, 900 * time.Microsecond, 0.45, 0.55, time.Millisecond},
		{"work that waits", 1, time.Second, 0, 0.01, time.Second},
		{"two cores", 2, 200 * time.Microsecond, 0, 0, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			onCores(t, test.cores)
			synctest.Test(t, func(t *testing.T) {
				var pause Pause
				var slept, piece, longest time.Duration
				begun := time.Now()
				for range 2_000 {
					time.Sleep(test.each)
					piece += test.each
					before := time.Now()
					pause.After(lookEvery)
					if now := time.Since(before); now > 0 {
						slept, piece = slept+now, 0
					}
					longest = max(longest, piece)
				}
				if part := float64(slept) / float64(time.Since(begun)); part < test.least || part > test.most {
					t.Errorf("sleeps %.3f of the time, want %.2f to %.2f", part, test.least, test.most)
				}
				if longest > test.piece {
					t.Errorf("works for %s without a pause, at most %s are allowed", longest, test.piece)
				}
			})
		})
	}
}

func TestPauseOfFewBytesAndANilPauseDoNotSleep(t *testing.T) {
	onCores(t, 1)
	synctest.Test(t, func(t *testing.T) {
		var pause Pause
		var none *Pause
		begun := time.Now()
		for range 100 {
			pause.After(lookEvery / 101)
			none.After(1 << 30)
		}
		if slept := time.Since(begun); slept != 0 {
			t.Errorf("slept %s", slept)
		}
	})
}

func TestCopyWithPausesCopiesAll(t *testing.T) {
	for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 300_000} {
		src := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
		dst := make([]byte, size+1)
		new(Pause).copy(dst, src)
		if !bytes.Equal(dst[:size], src) || dst[size] != 0 {
			t.Errorf("%d bytes are not copied", size)
		}
	}
}
