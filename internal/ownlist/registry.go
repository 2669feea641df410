package ownlist

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// pollInterval is how often watch looks whether a file has changed, see files.Every.
const pollInterval = 500 * time.Millisecond

// registry holds one source for each list that is open.
type registry struct {
	interval time.Duration

	mu    sync.Mutex
	files map[Config]*source // by key; guarded by mu
}

// Config says which list to open and how to read its lines.
type Config struct {
	Path       string     // "" with Fetched: there is no file
	Name       string     // what a Match and a State call the list; "": Path
	Fetched    bool       // another goroutine fetches the file: it may not exist yet, and may have no entries any more
	Wide       bool       // of a Fetched list: lines that match every name or a whole public suffix count, too
	Allow      bool       // it is an allow list; otherwise it blocks
	IPv4, IPv6 netip.Addr // sinkhole: lines of hosts files with these addresses block too; zero: none
}

// key returns a Config that is equal for lists that can share one source: the path is
// absolute, and addresses without an effect are removed.
func (c Config) key() (Config, error) {
	if c.Path != "" || !c.Fetched {
		path, err := filepath.Abs(c.Path)
		if err != nil {
			return Config{}, fmt.Errorf("opening %s: %w", c.Path, err)
		}
		c.Path = path
	}
	for _, addr := range []*netip.Addr{&c.IPv4, &c.IPv6} {
		if c.Allow || addr.IsUnspecified() || addr.IsLoopback() {
			*addr = netip.Addr{}
		}
	}
	return c, nil
}

// name returns what a Match and a State call the list.
func (c Config) name() string { return cmp.Or(c.Name, c.Path) }

func newRegistry(interval time.Duration) *registry {
	return &registry{interval: interval, files: make(map[Config]*source)}
}

// opened is the registry of the process. It is a package variable because server blocks do
// not know each other and must share their files.
var opened = newRegistry(pollInterval)

// source is an open file. The first Open loads it and starts the goroutine watch, which
// loads it again. The last Close stops the goroutine and waits for it.
type source struct {
	key     Config
	content atomic.Pointer[content]
	stop    context.CancelFunc
	changed chan struct{}  // has one element if watch must poll now
	wg      sync.WaitGroup // counts watch

	mu      sync.Mutex
	openers []*opener // the calls of Open without a Close, the oldest first; guarded by mu
	err     error     // why the file cannot be used now, or nil; guarded by mu

	// Used only by watch, after Open:
	version fs.FileInfo // of the content; nil: read the file again
	torn    int         // reads in a row during which the file changed
	big     bool        // poll less often
}

// opener is one call of Open.
type opener struct {
	name   string // the name or the path given to Open
	report func(Event)
}

// Open loads a list. If a list with an equal Config is open already, Open shares it and
// does not read the file. Until Close, a goroutine loads the file again whenever it
// changes. It follows symlinks each time, so a symlink may be replaced. The old content
// stays in use while the file is loaded, and also if the file vanishes, cannot be read or
// has no entries any more.
//
// Open returns an error if the file cannot be read the first time. A fetched list has no
// entries until its file can be read: it must not keep DNS from starting.
//
// Events of a shared file go to the report of the oldest Open without a Close. report may
// be nil. Open and the goroutine call it, one call at a time; it must not call Close.
func Open(c Config, report func(Event)) (*File, error) { return opened.open(c, report) }

func (r *registry) open(c Config, report func(Event)) (*File, error) {
	k, err := c.key()
	if err != nil {
		return nil, err
	}
	if report == nil {
		report = func(Event) {}
	}
	o := &opener{c.name(), report}
	s, first, err := r.acquire(k, o)
	if err != nil {
		return nil, err
	}
	if first {
		s.reportFirst()
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.wg.Go(func() { s.watch(ctx, r.interval) })
	}
	release := sync.OnceFunc(func() { r.release(s, o) })
	return &File{name: c.name(), fetched: c.Fetched, content: &s.content, source: s, close: release}, nil
}

// Changed says that the file at a path has been replaced: lists that are open read it
// now, and not only at the next poll. It does not wait for them, and is safe for
// concurrent use.
func Changed(path string) { opened.pollNow(path) }

func (r *registry) pollNow(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.files {
		if k.Path == path {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
	}
}

// acquire returns the source of a file, and whether it has just loaded it. It holds the
// lock while it reads: two calls for the same file must not both read it.
func (r *registry) acquire(k Config, o *opener) (s *source, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s = r.files[k]
	if s == nil {
		c, version, steady, err := load(k)
		if err != nil && !k.Fetched {
			return nil, false, err
		}
		s = &source{key: k, changed: make(chan struct{}, 1), err: err}
		if err != nil {
			c = newBuilder().build()
		}
		s.content.Store(c)
		if s.big = version != nil && version.Size() >= bigFile; steady {
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

// release undoes one Open. The last one stops the goroutine and waits for it.
func (r *registry) release(s *source, o *opener) {
	if !r.forget(s, o) {
		return
	}
	s.stop()
	files.Wait(s.wg.Wait)
}

// forget removes one opener and reports whether it was the last. Then it removes the
// source too.
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

// Close ends the updates of the list. The last Close of a shared file stops its goroutine
// and waits for it, but not for a disk that hangs, see patience. Match continues with the last content. Close may be called more than
// once.
func (f *File) Close() { f.close() }
