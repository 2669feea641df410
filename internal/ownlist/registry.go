package ownlist

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
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
	files map[Config]*source // by key
}

// Config says which list to open, and what makes its lines mean something else
// than in another list.
type Config struct {
	Path       string
	Allow      bool       // names in it are never blocked; else they are
	IPv4, IPv6 netip.Addr // the sinkhole's: lines of hosts files with these block, too; zero: none
}

// key returns what the list shares with the equal ones of other server blocks:
// with an absolute path, and without addresses that change nothing.
func (c Config) key() (Config, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return Config{}, fmt.Errorf("opening %s: %w", c.Path, err)
	}
	c.Path = path
	for _, addr := range []*netip.Addr{&c.IPv4, &c.IPv6} {
		if c.Allow || addr.IsUnspecified() || addr.IsLoopback() {
			*addr = netip.Addr{}
		}
	}
	return c, nil
}

func newRegistry(interval time.Duration) *registry {
	return &registry{interval: interval, files: make(map[Config]*source)}
}

// opened is the registry of the process: server blocks know nothing of each
// other.
var opened = newRegistry(pollInterval)

// source is an open file. One goroutine, watch, loads it; it is started by the
// first Open, and stopped and waited for by the last Close.
type source struct {
	key     Config
	content atomic.Pointer[content]
	stop    context.CancelFunc
	wg      sync.WaitGroup // of watch

	mu      sync.Mutex
	openers []*opener // who has it open, in that order
	err     error     // why the file cannot be used now; nil: it can

	// Of the goroutine:
	version fs.FileInfo // that was last read to its end; nil: read again
	torn    int         // how many times in a row the file changed while it was read
}

// opener is one call of Open.
type opener struct {
	path   string // as it was given
	report func(Event)
}

// Open loads a list, or shares it if an equal one is open already: it is then not
// read again. The path is used as it is for each look, so
// that a symlink may point elsewhere later. Until Close a goroutine loads the
// file anew when it changes; what was read before stays in force meanwhile, and
// also when the file vanishes, cannot be read, or lists nothing any more.
//
// Events of a shared file go to the first of those that have it open; report
// may be nil. It is called from Open and from the goroutine, one call at a
// time, and must not call Close. If the file cannot be read the first time Open
// returns the error.
func Open(c Config, report func(Event)) (*File, error) { return opened.open(c, report) }

func (r *registry) open(c Config, report func(Event)) (*File, error) {
	k, err := c.key()
	if err != nil {
		return nil, err
	}
	if report == nil {
		report = func(Event) {}
	}
	o := &opener{c.Path, report}
	s, first, err := r.acquire(k, o)
	if err != nil {
		return nil, err
	}
	if first {
		s.loaded(false)
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.wg.Go(func() { s.watch(ctx, r.interval) })
	}
	release := sync.OnceFunc(func() { r.release(s, o) })
	return &File{name: c.Path, content: &s.content, source: s, close: release}, nil
}

// acquire returns the source of a file, and whether it had to be loaded. Others who
// open a file wait: two that name the same one must not both read it.
func (r *registry) acquire(k Config, o *opener) (s *source, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.files[k]
	if s == nil {
		c, version, steady, err := load(k)
		if err != nil {
			return nil, false, err
		}
		s = &source{key: k}
		s.content.Store(c)
		if steady {
			s.version = version
		}
		r.files[k] = s
		first = true
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
