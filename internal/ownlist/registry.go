package ownlist

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// pollInterval is how often an open file is looked at. Polling, unlike
// notification, also sees renames, symlinks that are swapped, and network
// file systems.
const pollInterval = 5 * time.Second

// registry is the files that are open, each held once.
type registry struct {
	interval time.Duration

	mu    sync.Mutex
	files map[key]*source
}

// key is what makes two open files different. The same lines mean something
// else in an allow list.
type key struct {
	path  string // absolute
	allow bool
}

func newRegistry(interval time.Duration) *registry {
	return &registry{interval: interval, files: make(map[key]*source)}
}

// opened is the registry of the process: server blocks know nothing of each
// other.
var opened = newRegistry(pollInterval)

// source is an open file. One goroutine, watch, loads it; it is started by the
// first Open, and stopped and waited for by the last Close.
type source struct {
	key     key
	content atomic.Pointer[content]
	stop    context.CancelFunc
	wg      sync.WaitGroup // of watch

	mu      sync.Mutex
	openers []*opener // who has it open, in that order

	// Of the goroutine:
	version fs.FileInfo // that was last read to its end; nil: read again
	failure string      // the error that was reported last; "": none
	torn    int         // how many times in a row the file changed while it was read
}

// opener is one call of Open.
type opener struct{ report func(Event) }

// Open loads a list, or shares it if it is open already under that path and
// kind: it is then not read again. The path is used as it is for each look, so
// that a symlink may point elsewhere later. Until Close a goroutine loads the
// file anew when it changes; what was read before stays in force meanwhile, and
// also when the file vanishes, cannot be read, or lists nothing any more.
//
// Events of a shared file go to the first of those that have it open; report
// may be nil. It is called from Open and from the goroutine, one call at a
// time, and must not call Close. If the file cannot be read the first time Open
// returns the error.
func Open(path string, allow bool, report func(Event)) (*File, error) {
	return opened.open(path, allow, report)
}

func (r *registry) open(path string, allow bool, report func(Event)) (*File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if report == nil {
		report = func(Event) {}
	}
	o := &opener{report}
	s, first, err := r.acquire(key{absolute, allow}, o)
	if err != nil {
		return nil, err
	}
	if first != nil {
		report(*first)
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.wg.Go(func() { s.watch(ctx, r.interval) })
	}
	release := sync.OnceFunc(func() { r.release(s, o) })
	return &File{name: path, content: &s.content, close: release}, nil
}

// acquire returns the source of a file. If it had to be loaded first is what
// was read. Others who open a file wait: two that name the same one must not
// both read it.
func (r *registry) acquire(k key, o *opener) (s *source, first *Loaded, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.files[k]
	if s == nil {
		c, sum, version, steady, err := load(k.path, k.allow)
		if err != nil {
			return nil, nil, err
		}
		s = &source{key: k}
		s.content.Store(c)
		if steady {
			s.version = version
		}
		r.files[k] = s
		first = &sum
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openers = append(s.openers, o)
	return s, first, nil
}

// release takes back one Open. The last one waits for the goroutine.
func (r *registry) release(s *source, o *opener) {
	if !r.forget(s, o) {
		return
	}
	s.stop()
	s.wg.Wait()
}

// forget reports whether nobody has the source open any more.
func (r *registry) forget(s *source, o *opener) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.openers {
		if s.openers[i] == o {
			s.openers = append(s.openers[:i:i], s.openers[i+1:]...)
			break
		}
	}
	if len(s.openers) > 0 {
		return false
	}
	delete(r.files, s.key)
	return true
}

// Close ends the use of the list: the last Close of a shared file ends its
// goroutine and waits for it. It may be called more than once. Match goes on
// with what was read last.
func (f *File) Close() { f.close() }
