package prefixset

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Pause interrupts long work on a machine with one core. There the scheduler does not look at
// the network while a goroutine computes, and queries would wait for tens of milliseconds. The
// zero Pause is ready to use; a nil Pause never sleeps. It is not safe for concurrent use.
type Pause struct {
	done int       // bytes since the last look at the clock
	from time.Time // when the work at hand began; zero: not yet
}

const (
	lookEvery  = 8 << 10                // bytes: 20 to 200 µs of work
	pauseEvery = 300 * time.Microsecond // of work
	maxPause   = time.Millisecond       // work may have waited for the network: that counts for nothing
)

// rested is when the last sleep of any Pause ended. Whoever reads several sets at once has a Pause for each: the sleep
// of one must not count as work of the others.
var rested atomic.Pointer[time.Time]

// After counts bytes of processed entries, and sleeps from time to time for as long as it has
// worked. A shorter sleep starves queries: when it ends, the scheduler runs its goroutine before
// all those that became ready meanwhile, so in 50 µs no more than three of them run.
// runtime.Gosched would not be enough either: the scheduler would run the same goroutine
// again before it looks at the network.
func (p *Pause) After(bytes int) {
	if p == nil {
		return
	}
	if p.done += bytes; p.done < lookEvery {
		return
	}
	p.done = 0
	if runtime.GOMAXPROCS(0) > 1 {
		return
	}
	now := time.Now()
	if p.from.IsZero() {
		p.from = now
	}
	if last := rested.Load(); last != nil && last.After(p.from) && !last.After(now) {
		p.from = *last
	}
	if worked := now.Sub(p.from); worked >= pauseEvery {
		time.Sleep(min(worked, maxPause))
		ended := time.Now()
		p.from = ended
		rested.Store(&ended)
	}
}

// copy is the built-in copy, with pauses.
func (p *Pause) copy(dst, src []byte) {
	for len(src) > 0 {
		n := copy(dst, src[:min(len(src), 1<<16)])
		dst, src = dst[n:], src[n:]
		p.After(n)
	}
}
