package ownlist

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// sideBySide is how many lists are downloaded at the same time. A download takes some 100 KiB
// of memory, whatever the list: it is on disk before package ownlist reads it.
const sideBySide = 4

// waitsLong is after what wait for a place a list says so.
const waitsLong = time.Minute

// downloads are places for the downloads under way: a semaphore that knows who has one. It is safe for concurrent
// use.
type downloads struct {
	free chan struct{} // has one element for each place that is taken

	mu    sync.Mutex
	names map[*urlSource]string // of those that have a place; guarded by mu
}

func newDownloads() *downloads {
	return &downloads{free: make(chan struct{}, sideBySide), names: make(map[*urlSource]string)}
}

// take waits for a place, and returns a function that gives it back, which may be called more
// than once. Once, after waitsLong, it tells waiting which lists have the places. If ctx ends
// before there is one, it returns nil.
func (p *downloads) take(ctx context.Context, s *urlSource, waiting func(others []string)) (leave func()) {
	timer := time.NewTimer(waitsLong)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			waiting(p.taken())
			continue
		case p.free <- struct{}{}:
		}
		p.mu.Lock()
		p.names[s] = s.name
		p.mu.Unlock()
		return sync.OnceFunc(func() {
			p.mu.Lock()
			delete(p.names, s)
			p.mu.Unlock()
			<-p.free
		})
	}
}

// taken returns the names of the lists that have a place, sorted.
func (p *downloads) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, name := range p.names {
		all = append(all, name)
	}
	slices.SortFunc(all, cmp.Compare[string])
	return all
}
