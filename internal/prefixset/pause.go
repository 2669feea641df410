package prefixset

import (
	"runtime"
	"time"
)

// Pause interrupts long work on a machine with one core. There the scheduler does not look at
// the network while a goroutine computes, and queries would wait for tens of milliseconds. The
// zero Pause is ready to use; a nil Pause never sleeps. It is not safe for concurrent use.
type Pause struct{ done int }

const (
	pauseEvery = 256 << 10 // bytes of entries: about half a millisecond of work
	pauseFor   = 50 * time.Microsecond
)

// After counts bytes of processed entries and sleeps from time to time. runtime.Gosched would
// not be enough: the scheduler would run the same goroutine again before it looks at the
// network.
func (p *Pause) After(bytes int) {
	if p == nil {
		return
	}
	if p.done += bytes; p.done < pauseEvery {
		return
	}
	p.done = 0
	if runtime.GOMAXPROCS(0) == 1 {
		time.Sleep(pauseFor)
	}
}
