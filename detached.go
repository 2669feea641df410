package safebrowsing

import (
	"sync"
	"time"
)

// detached runs what may outlive its query, and knows when all of it has ended. The
// zero value is ready to use; it is safe for concurrent use.
type detached struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

// run calls f in a goroutine of its own, or in this one after end: queries still
// come while a server shuts down.
func (d *detached) run(f func()) {
	d.mu.Lock()
	ended := d.ended
	if !ended {
		d.wg.Go(f)
	}
	d.mu.Unlock()
	if ended {
		f()
	}
}

// shutdownGrace is how long a server block waits for next plugins that outlive their
// queries. CoreDNS waits as long for the queries themselves.
const shutdownGrace = 5 * time.Second

// end waits for all that run has begun, at most for shutdownGrace.
func (d *detached) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(shutdownGrace):
	}
}
