package prefixset

import (
	"runtime"
	"time"
)

// Pause lets others run during long work on a machine with one core: there nobody
// looks at the network while a goroutine computes, which may go on for tens of
// milliseconds. The zero Pause is ready to use, a nil Pause never sleeps. It is not
// safe for concurrent use.
type Pause struct{ done int }

const (
	pauseEvery = 256 << 10 // bytes, which take about half a millisecond
	pauseFor   = 50 * time.Microsecond
)

// After notes that so many bytes of entries have been worked on, and sleeps from
// time to time. To yield would not do: the scheduler would take the same goroutine
// again before it looks at the network.
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
