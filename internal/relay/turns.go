package relay

import (
	"net/netip"
	"slices"
	"sync"
)

// turns lets one encoder work at a time. The sites that wait take turns, whatever the number of
// requests that each of them has: a client that asks for a hundred updates delays another by
// one. The zero value is ready to use. It is safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	busy    bool                             // it is somebody's turn; guarded by mu
	sites   []netip.Addr                     // that wait, the next one first; guarded by mu
	waiting map[netip.Addr][]chan<- struct{} // of each of sites, the oldest first, never empty; guarded by mu
}

// take waits for the turn of a site, and reports whether it came before gone or done was
// closed. If so, call leave once.
func (t *turns) take(site netip.Addr, gone, done <-chan struct{}) bool {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	t.append(site, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-gone:
	case <-done:
	}
	if !t.quit(site, turn) { // it came at the same moment
		t.leave()
	}
	return false
}

// append is called with mu locked.
func (t *turns) append(site netip.Addr, turn chan<- struct{}) {
	if t.waiting == nil {
		t.waiting = make(map[netip.Addr][]chan<- struct{})
	}
	if len(t.waiting[site]) == 0 {
		t.sites = append(t.sites, site)
	}
	t.waiting[site] = append(t.waiting[site], turn)
}

// quit reports whether a turn has not come yet. Then it never does.
func (t *turns) quit(site netip.Addr, turn chan<- struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[site], turn)
	if i < 0 {
		return false
	}
	if t.remove(site, i); len(t.waiting[site]) == 0 {
		i := slices.Index(t.sites, site)
		t.sites = slices.Delete(t.sites, i, i+1)
	}
	return true
}

// remove is called with mu locked.
func (t *turns) remove(site netip.Addr, i int) {
	if t.waiting[site] = slices.Delete(t.waiting[site], i, i+1); len(t.waiting[site]) == 0 {
		delete(t.waiting, site)
	}
}

// leave ends a turn. It is the next site's then.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sites) == 0 {
		t.busy = false
		return
	}
	site := t.sites[0]
	turn := t.waiting[site][0]
	t.sites = slices.Delete(t.sites, 0, 1)
	if t.remove(site, 0); len(t.waiting[site]) > 0 {
		t.sites = append(t.sites, site)
	}
	close(turn)
}
