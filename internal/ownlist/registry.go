package ownlist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
		if st := s.state(); st.Err != nil || !s.missing() { // a file that is not there yet is no event
			s.report(Event{State: st})
		}
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

// release undoes one Open. The last one removes the source, stops the goroutine and waits for it.
func (r *registry) release(s *source, o *opener) {
	r.mu.Lock()
	s.mu.Lock()
	s.openers = slices.DeleteFunc(s.openers, func(other *opener) bool { return other == o })
	last := len(s.openers) == 0
	if last {
		delete(r.files, s.key)
	}
	s.mu.Unlock()
	r.mu.Unlock()
	if last {
		s.stop()
		files.Wait(s.wg.Wait)
	}
}

// Close ends the updates of the list. The last Close of a shared file stops its goroutine
// and waits for it, but not for a disk that hangs, see files.Wait. Match continues with the last content. Close may be called more than
// once.
func (f *File) Close() { f.close() }

// Event is a change that a caller may want to log: without an Err, that a file has been read and
// that queries use its content; else that it cannot be used, while queries still use the content
// before. An error is reported once for each new reason, and its end too.
type Event struct {
	State
	Again bool // it has been read, and could not be used before
}

// errEmpty says that a file has no usable entry any more, and had some before. The reason
// is more often an accident than an intention: a failed download, or a writer that has
// not finished.
var errEmpty = errors.New("it has no usable entry any more")

// maxTorn is how many reads in a row may be torn, because the file changed meanwhile. The
// last of them is used nevertheless: some files never stop changing.
const maxTorn = 3

// bigFile is the size, in bytes, from which a file is polled less often: people edit small
// files, and programs write big ones, for seconds.
const bigFile = 1 << 20

// watch polls the file at each interval, a big file at each tenth, and when Changed says
// so, until ctx ends.
func (s *source) watch(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if n%10 == 0 || !s.big {
				s.poll()
			}
		case <-s.changed:
			s.poll()
		}
	}
}

// poll loads the file if its version has changed.
func (s *source) poll() {
	version, err := os.Stat(s.key.Path)
	if err == nil && files.Same(version, s.version) {
		return
	}
	if errors.Is(err, fs.ErrNotExist) && s.missing() {
		return
	}
	s.big = err == nil && version.Size() >= bigFile
	s.version = nil
	if err != nil {
		s.fail(err)
		return
	}
	if s.big && !reading.take(time.Now()) {
		return // the next poll tries again
	}
	c, version, steady, err := load(s.key)
	if s.big {
		reading.give()
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.take(c, version, steady)
}

// reading lets one big list be read again at a time: each takes the memory of its content in
// addition to the one before, and several lists by URL may come together.
var reading turn

// turn is taken by one at a time. One that has had it for longTurn, as when a disk hangs, does
// not keep it from others. The zero value is free. It is safe for concurrent use.
type turn struct {
	mu    sync.Mutex
	since time.Time // zero: free; guarded by mu
}

const longTurn = time.Minute

// take reports whether the caller has the turn now.
func (t *turn) take(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() && now.Sub(t.since) < longTurn {
		return false
	}
	t.since = now
	return true
}

// give ends a turn.
func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

// missing reports whether the list has not been fetched yet.
func (s *source) missing() bool { return s.key.Fetched && s.content.Load().summary.Modified.IsZero() }

// take publishes new content, unless the old content is better.
func (s *source) take(c *content, version fs.FileInfo, steady bool) {
	if steady {
		s.version, s.torn = version, 0
	} else if s.torn++; s.torn < maxTorn {
		return // half of a new list is worse than the whole old one
	}
	if !s.key.Fetched && c.summary.Entries == 0 && !c.summary.onPurpose && s.content.Load().summary.Entries > 0 {
		s.fail(fmt.Errorf("%w: it %s", errEmpty, c.summary.Nothing()))
		return
	}
	s.content.Store(c)
	s.mu.Lock()
	again := s.err != nil
	s.err = nil
	s.mu.Unlock()
	s.report(Event{s.state(), again})
}

// fail reports an error, unless the last report had the same one.
func (s *source) fail(err error) {
	s.mu.Lock()
	same := s.err != nil && (s.err.Error() == err.Error() || errors.Is(s.err, errEmpty) && errors.Is(err, errEmpty))
	s.err = err
	s.mu.Unlock()
	if !same {
		s.report(Event{State: s.state()})
	}
}

// report passes an event to the oldest opener.
func (s *source) report(e Event) {
	s.mu.Lock()
	report := func(Event) {}
	if len(s.openers) > 0 {
		report = s.openers[0].report
	}
	s.mu.Unlock()
	report(e)
}
