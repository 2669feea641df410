package relay

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

const (
	// maxEncodedBytes is the most memory of encoded updates that are kept. A full update of
	// ten million entries has 13 MB. The newest one is always kept.
	maxEncodedBytes = 48 << 20

	// maxEncoded is the most encoded updates that are kept: more than a history has steps.
	maxEncoded = 2048

	// maxChanges is the most changes between contents that are kept for further steps of
	// clients that limit the size of an update.
	maxChanges = 4
)

// encodings keeps encoded updates for the next client that asks the same, the most recently
// used ones. It is safe for concurrent use.
type encodings struct {
	flight singleflight.Group

	// encoding is held while an update is made. Encoders take turns: each one of a large
	// list keeps a processor busy for some tenths of a second and allocates megabytes.
	encoding sync.Mutex
	changes  *simplelru.LRU[string, change] // verified; guarded by encoding

	mu      sync.Mutex // guards the rest
	kept    *simplelru.LRU[string, kept]
	bytes   int
	inForce map[string]*state
}

// kept is an encoded update of one content of a list.
type kept struct {
	of     *state
	answer Answer
}

func newEncodings() encodings {
	all, err := simplelru.NewLRU[string, kept](maxEncoded, nil)
	if err != nil {
		panic(err) // it wants a positive number
	}
	changes, err := simplelru.NewLRU[string, change](maxChanges, nil)
	if err != nil {
		panic(err)
	}
	return encodings{kept: all, changes: changes}
}

// get returns the answer to a request. It makes the answer if no client has asked for it
// before; clients that ask meanwhile wait for it. If ctx ends before its turn, the next of
// them makes the answer.
func (e *encodings) get(ctx context.Context, u request) (Answer, error) {
	key := u.key()
	if a, ok := e.find(key); ok {
		return a, nil
	}
	got, err, shared := e.flight.Do(key, func() (any, error) {
		if a, ok := e.find(key); ok {
			return a, nil
		}
		e.encoding.Lock()
		defer e.encoding.Unlock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := (&encoder{u, e.open}).encode()
		if err == nil {
			e.keep(key, kept{u.state, a})
		}
		return a, err
	})
	if shared && err != nil && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return e.get(ctx, u) // the client that was to make the answer has gone away
	}
	a, _ := got.(Answer)
	return a, err
}

// find returns a kept answer.
func (e *encodings) find(key string) (Answer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k, ok := e.kept.Get(key)
	return k.answer, ok
}

// keep keeps an answer and drops others, the least recently used first. It does not keep an
// answer about a content that has been replaced meanwhile.
func (e *encodings) keep(key string, k kept) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inForce[k.of.name] != k.of {
		return
	}
	for e.kept.Len() > 0 && (e.bytes+len(k.answer.Message) > maxEncodedBytes || e.kept.Len() == maxEncoded) {
		_, oldest, _ := e.kept.RemoveOldest()
		e.bytes -= len(oldest.answer.Message)
	}
	e.kept.Add(key, k)
	e.bytes += len(k.answer.Message)
}

// forget drops the updates of contents that are not in force any more.
func (e *encodings) forget(inForce map[string]*state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inForce = inForce
	for _, key := range e.kept.Keys() {
		if k, _ := e.kept.Peek(key); inForce[k.of.name] != k.of {
			e.kept.Remove(key)
			e.bytes -= len(k.answer.Message)
		}
	}
}

// open returns the content of a view, or errHistory. The caller holds encoding.
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
	return func() runs { return firstRuns(c(), s.width, int(v.limit)) }, nil
}

// before returns the content that a change led from.
func (s *state) before(c change) content {
	return func() runs { return changedRuns(setRuns(s.set), setRuns(c.added), setRuns(c.removed), s.width) }
}

// changeSince returns the change from an earlier content to the one in force. It makes sure
// that the change gives the entries that the id names: a history that is damaged, in memory or
// on disk, must not become a wrong update.
func (e *encodings) changeSince(s *state, from id) (change, error) {
	key := string(s.sum[:]) + string(from[:])
	if c, ok := e.changes.Get(key); ok {
		return c, nil
	}
	steps := since(s.history, from)
	if steps == nil {
		return change{}, errHistory
	}
	c, err := changeOf(steps, s.width)
	if err != nil || idOf(sumOf(s.before(c)())) != from {
		return change{}, errHistory
	}
	e.changes.Add(key, c)
	return c, nil
}
