package relay

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

const (
	// maxEncodedBytes is the most memory of encoded updates that are kept. A full update of
	// ten million entries has 13 MB. The newest one is always kept.
	maxEncodedBytes = 48 << 20

	// maxEncoded is the most encoded updates that are kept: more than a history has steps.
	maxEncoded = 2048

	// maxChanges is the most changes between contents that are kept: clients with one version may
	// want several views.
	maxChanges = 4
)

// encodings keeps encoded updates for the next client that asks the same, the most recently
// used ones. It is safe for concurrent use.
type encodings struct {
	// turns are for those who make an update. Encoders take turns: each one of a large
	// list keeps a processor busy for some tenths of a second and allocates megabytes.
	turns   turns
	changes *simplelru.LRU[string, change] // verified; for those whose turn it is

	mu      sync.Mutex // guards the rest
	making  map[string]*making
	kept    *simplelru.LRU[string, kept]
	bytes   int
	inForce map[string]*state
}

// making is an answer for which clients wait: each of them for its turn to make it, until one
// of them has.
type making struct {
	clients int           // guarded by encodings.mu
	done    chan struct{} // closed when answer and err are there
	answer  Answer
	err     error
}

// kept is an encoded update of one content of a list.
type kept struct {
	of     *state
	answer Answer
	site   netip.Addr // of the client that asked for it
	shared bool       // another site has asked for it, too
}

func newEncodings() encodings {
	all, _ := simplelru.NewLRU[string, kept](maxEncoded, nil) // it refuses only a number below 1
	changes, _ := simplelru.NewLRU[string, change](maxChanges, nil)
	return encodings{kept: all, changes: changes, making: make(map[string]*making)}
}

// get returns the answer to a request of a client. It makes the answer if no client has asked
// for it before; clients that ask meanwhile wait for it. A client waits for its own turn, too:
// the one that asked first may have others before it. The error is ctx's if it ends
// before.
func (e *encodings) get(ctx context.Context, client netip.Addr, u request) (Answer, error) {
	key, site := u.key(), lookup.Site(client)
	if a, ok := e.find(key, site); ok {
		return a, nil
	}
	m := e.join(key)
	defer e.part(key, m)
	if e.turns.take(site, ctx.Done(), m.done) {
		defer e.turns.leave()
		if ctx.Err() == nil {
			e.finish(key, site, u, m)
		}
	}
	select {
	case <-m.done:
		return m.answer, m.err
	default:
		return Answer{}, ctx.Err()
	}
}

// join returns the answer that is being made for key.
func (e *encodings) join(key string) *making {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.making[key]
	if m == nil {
		m = &making{done: make(chan struct{})}
		e.making[key] = m
	}
	m.clients++
	return m
}

// part is called once for each join.
func (e *encodings) part(key string, m *making) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.clients--; m.clients == 0 && e.making[key] == m {
		delete(e.making, key)
	}
}

// finish makes an answer, unless that has been done. The caller has the turn.
func (e *encodings) finish(key string, site netip.Addr, u request, m *making) {
	select {
	case <-m.done:
		return
	default:
	}
	var ok bool
	if m.answer, ok = e.find(key, site); !ok {
		if m.answer, m.err = (&encoder{u, e.open}).encode(); m.err == nil {
			e.keep(key, kept{of: u.state, answer: m.answer, site: site})
		}
	}
	e.mu.Lock()
	delete(e.making, key)
	e.mu.Unlock()
	close(m.done)
}

// find returns a kept answer for a client of site.
func (e *encodings) find(key string, site netip.Addr) (Answer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k, ok := e.kept.Get(key)
	if ok && !k.shared && k.site != site {
		k.shared = true
		e.kept.Add(key, k)
	}
	return k.answer, ok
}

// keep keeps an answer and drops others, see leastUseful. It does not keep an answer about a
// content that has been replaced meanwhile.
func (e *encodings) keep(key string, k kept) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inForce[k.of.form()] != k.of {
		return
	}
	for e.kept.Len() > 0 && (e.bytes+len(k.answer.Message) > maxEncodedBytes || e.kept.Len() == maxEncoded) {
		e.drop(e.leastUseful(k.site))
	}
	e.kept.Add(key, k)
	e.bytes += len(k.answer.Message)
}

// leastUseful returns the key of the answer that is dropped for one of a site: the least
// recently used one that only this site has asked for; if there is none, that only one site
// has; else of all. So a client that asks for updates which nobody else wants displaces its
// own. The caller holds mu.
func (e *encodings) leastUseful(site netip.Addr) string {
	keys := e.kept.Keys() // the least recently used first
	for _, dropped := range []func(kept) bool{
		func(k kept) bool { return !k.shared && k.site == site },
		func(k kept) bool { return !k.shared },
	} {
		for _, key := range keys {
			if k, _ := e.kept.Peek(key); dropped(k) {
				return key
			}
		}
	}
	return keys[0]
}

// drop drops a kept answer. The caller holds mu.
func (e *encodings) drop(key string) {
	k, _ := e.kept.Peek(key)
	e.kept.Remove(key)
	e.bytes -= len(k.answer.Message)
}

// forget drops the updates of contents that are not in force any more.
func (e *encodings) forget(inForce map[string]*state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inForce = inForce
	for _, key := range e.kept.Keys() {
		if k, _ := e.kept.Peek(key); inForce[k.of.form()] != k.of {
			e.drop(key)
		}
	}
}

// open returns the content of a view, or errHistory. The caller has the turn.
func (e *encodings) open(s *state, v view) (content, error) {
	c := contentOf(s.set)
	if v.id != s.id {
		back, err := e.changeSince(s, v.id)
		if err != nil {
			return nil, err
		}
		c = s.before(back)
	}
	if v.limit == 0 {
		return c, nil
	}
	return func() runs { return firstRuns(c(), int64(v.limit)) }, nil
}

// before returns the content that a change led from.
func (s *state) before(c change) content {
	return func() runs { return changedRuns(setRuns(s.set), setRuns(c.added), setRuns(c.removed)) }
}

// changeSince returns the change from an earlier content to the one in force. It makes sure
// that the change gives the entries that the id names: a history that is damaged, in memory or
// on disk, must not become a wrong update.
func (e *encodings) changeSince(s *state, from id) (change, error) {
	key := s.form() + string(s.sum[:]) + string(from[:])
	if c, ok := e.changes.Get(key); ok {
		return c, nil
	}
	steps := since(s.history, from)
	if steps == nil {
		return change{}, errHistory
	}
	c, err := changeOf(steps)
	if err != nil || idOf(sumOf(s.before(c)())) != from {
		return change{}, errHistory
	}
	e.changes.Add(key, c)
	return c, nil
}

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
	if t.waiting == nil {
		t.waiting = make(map[netip.Addr][]chan<- struct{})
	}
	if len(t.waiting[site]) == 0 {
		t.sites = append(t.sites, site)
	}
	t.waiting[site] = append(t.waiting[site], turn)
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
