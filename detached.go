package safebrowsing

import "sync"

// detached runs what a query does not wait for, or waits for by itself, and knows
// when all of it has ended. The zero value is ready to use; it is safe for
// concurrent use.
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

// end waits for all that run has begun.
func (d *detached) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.wg.Wait()
}
