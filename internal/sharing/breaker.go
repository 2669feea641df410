package sharing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFailures is how many failures in a row make Fast leave Redis alone.
	maxFailures = 5
	// minPause and maxPause bound the time from the last failure to the next probe. It
	// doubles with each probe that fails.
	minPause = time.Second
	maxPause = 30 * time.Second
	// idle is the time between two probes of a Redis that works.
	idle = 5 * time.Second
	// tries is how many calls one probe makes. All must be answered in time before Redis
	// is used again, and one before it is left alone: a Redis that is just fast enough
	// does not come and go.
	tries = 3
)

// breaker keeps requests of clients away from a Redis that does not work. It is safe
// for concurrent use.
type breaker struct {
	state   func(error)   // told when the breaker opens, with the reason, or closes
	opened  chan struct{} // has one element after the breaker has opened
	isOpen  atomic.Bool   // written under mu
	mu      sync.Mutex
	failed  int   // in a row; guarded by mu
	because error // why it is open; guarded by mu
	known   bool  // state was told; guarded by mu
}

func newBreaker(state func(error)) *breaker {
	b := &breaker{state: state, opened: make(chan struct{}, 1)}
	b.isOpen.Store(true) // until the first probe
	return b
}

// open reports whether Redis is left alone.
func (b *breaker) open() bool { return b.isOpen.Load() }

// reason returns why the breaker is open, or nil.
func (b *breaker) reason() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.because
}

// note notes how a call ended.
func (b *breaker) note(err error) {
	switch {
	case err == nil && !b.open():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.failed = 0
	case err != nil && !errors.Is(err, context.Canceled):
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.failed++; b.failed >= maxFailures {
			b.trip(err)
		}
	}
}

// probed notes how a probe ended, which decides at once.
func (b *breaker) probed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.trip(err)
		return
	}
	b.failed, b.because = 0, nil
	if b.isOpen.CompareAndSwap(true, false) {
		b.known = true
		b.state(nil)
	}
}

// trip opens the breaker. The caller holds mu.
func (b *breaker) trip(err error) {
	b.because = err
	if b.isOpen.CompareAndSwap(false, true) || !b.known {
		b.known = true
		b.state(err)
		select {
		case b.opened <- struct{}{}:
		default:
		}
	}
}

// probe is a write: a replica that only reads and a Redis that is full do not pass it.
var probe = NewScript(`return redis.call('SET', KEYS[1], '1', 'PX', 60000)`)

// watch connects and probes, until ctx ends.
func (c *Client) watch(ctx context.Context) {
	var p pauses
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.breaker.opened: // by a request: wait before the first probe
			timer.Reset(p.next(time.Now()))
			continue
		case <-timer.C:
		}
		was := c.breaker.open()
		err := c.test(was)
		if ctx.Err() != nil {
			return
		}
		c.breaker.probed(err)
		switch {
		case err != nil:
			select {
			case <-c.breaker.opened:
			default:
			}
			timer.Reset(p.next(time.Now()))
			continue
		case was:
			p.closed = time.Now()
		}
		timer.Reset(idle)
	}
}

// pauses says how long Redis is left alone. The time grows from minPause to maxPause, and
// continues growing if Redis works for less than maxPause in between. The zero pauses is
// ready for use.
type pauses struct {
	last   time.Duration
	closed time.Time // when Redis began to work again; zero: noted already
}

// next returns the time to the next probe.
func (p *pauses) next(now time.Time) time.Duration {
	if !p.closed.IsZero() && now.Sub(p.closed) > maxPause {
		p.last = 0
	}
	p.closed = time.Time{}
	p.last = min(max(2*p.last, minPause), maxPause)
	return p.last
}

// test connects if need be, and finds out whether Redis answers writes in time: all, or at
// least one.
func (c *Client) test(all bool) error {
	err := c.connect()
	if err != nil {
		return err
	}
	for range tries {
		begin := time.Now()
		_, err = c.within(c.deadline, *c.fast.Load(), call{script: probe, keys: []string{c.Key("probe")}}, func() {})
		c.cfg.Observer.Done("probe", time.Since(begin), err)
		if all != (err == nil) {
			break
		}
	}
	return err
}
