package ownlist

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// urlRegistry holds one source for each list that is open.
type urlRegistry struct {
	limits    limits
	client    func(resolvers string) *http.Client // for one download
	downloads *downloads

	mu      sync.Mutex
	sources map[id]*urlSource    // guarded by mu
	ending  map[id]chan struct{} // closed when the last run of a list that nobody has open has ended; guarded by mu
}

// id tells lists apart that cannot share a file.
type id struct{ url, db string }

// newURLRegistry returns a registry without lists. A nil transport is the network.
func newURLRegistry(l limits, transport http.RoundTripper) *urlRegistry {
	var networks sync.Map // by resolvers: each knows which of them to ask
	client := func(resolvers string) *http.Client {
		if transport != nil {
			return newClient(transport)
		}
		network, _ := networks.LoadOrStore(resolvers, protocol.Transport(strings.Fields(resolvers), new(tls.Config)))
		return newClient(network.(*http.Transport))
	}
	places := &downloads{free: make(chan struct{}, sideBySide), names: make(map[*urlSource]string)}
	return &urlRegistry{limits: l, client: client, downloads: places, sources: make(map[id]*urlSource), ending: make(map[id]chan struct{})}
}

// fetched is the registry of the process. It is a package variable because server blocks
// do not know each other and must share their lists.
var fetched = newURLRegistry(limits{whole: 15 * time.Minute, stall: time.Minute, pace: 30 * time.Second}, nil)

// urlSource is a list that is kept fresh. The first Open starts the goroutine run; the last
// Close stops it and waits for it, see files.Wait. A run begins when the one before, of the same
// list, has ended.
type urlSource struct {
	registry  *urlRegistry
	name      string
	path      string    // of the list
	temporary string    // directory of the list that ends with the source; "": none
	broken    error     // why there is no such directory, or nil
	said      saying    // used only by run
	failed    URLConfig // of the last attempt, unless a server refused it; used only by run
	stop      context.CancelFunc
	wg        sync.WaitGroup // counts run

	mu      sync.Mutex
	openers []*URLList // the oldest first, at least one; guarded by mu
	closed  bool       // nobody has the list open any more; guarded by mu
	state   URLState   // guarded by mu
}

// URLList is a list by URL that is open. Create it with Open.
type URLList struct {
	cfg     URLConfig
	reading Config
	report  func(URLEvent)
	source  *urlSource
	close   func()
}

// OpenURL keeps a list fresh until Close. If the list is open with an equal URL and DB, they
// share it: the shortest Refresh and the largest MaxBytes hold, and Wide if one of them has it; the Resolvers and reading
// are as in the oldest Open without a Close. reading says how lines are read; its path is not used.
//
// OpenURL does not wait for a server. It cannot fail: what goes wrong, also with the disk, is
// reported. Events of a shared list go to the report of the oldest Open without a Close.
// report may be nil. A goroutine calls it, one call at a time; it must not call Close.
func OpenURL(c URLConfig, reading Config, report func(URLEvent)) *URLList {
	return fetched.open(c, reading, report)
}

func (r *urlRegistry) open(c URLConfig, reading Config, report func(URLEvent)) *URLList {
	if report == nil {
		report = func(URLEvent) {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := id{c.URL, c.DB}
	s := r.sources[key]
	first := s == nil
	if first {
		s = newSource(r, c)
		for other, open := range r.sources {
			if other.url == c.URL { // a reload to another db
				s.inherit(open)
			}
		}
		r.sources[key] = s
	}
	l := &URLList{cfg: c, reading: reading, report: report, source: s}
	l.close = sync.OnceFunc(func() { r.release(key, s, l) })
	s.mu.Lock()
	s.openers = append(s.openers, l)
	s.mu.Unlock()
	if first {
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		before, done := r.ending[key], make(chan struct{})
		r.ending[key] = done
		s.wg.Go(func() {
			defer r.ended(key, done)
			if before != nil { // two runs would write one file
				<-before
			}
			s.run(ctx)
		})
	}
	return l
}

func newSource(r *urlRegistry, c URLConfig) *urlSource {
	s := &urlSource{registry: r, name: c.Name(), path: c.Path()}
	if s.path == "" {
		dir, err := os.MkdirTemp("", "coredns-safebrowsing-")
		if err != nil { // the first attempt reports it
			s.broken, dir = err, filepath.Join(os.TempDir(), "coredns-safebrowsing-"+rand.Text()) // others must not put a list there
		}
		s.temporary, s.path = dir, c.pathIn(dir)
	}
	s.state, _ = readURLState(s.name, s.path) // without a state the list is fetched whole
	return s
}

// inherit copies the list of another db if this one has none: it stays in force. Without it the list is fetched whole.
func (s *urlSource) inherit(other *urlSource) {
	if _, err := os.Stat(s.path); s.broken != nil || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	from, err := files.Open(other.path)
	if err != nil {
		return
	}
	defer from.Close()
	_ = os.MkdirAll(filepath.Dir(s.path), 0o750) // else Replace fails
	err = files.Replace(s.path, func(to *os.File) error {
		_, err := io.Copy(to, from)
		return err
	})
	if err != nil {
		return
	}
	state := other.current()
	if state.Failing() { // perhaps because of the other folder
		state.Next = firstDue(URLState{Tried: state.Tried, Asked: state.Asked}, 0, wall(), 0)
	}
	_ = state.save(s.path)
	s.state, _ = readURLState(s.name, s.path)
}

// ended notes that a run has ended.
func (r *urlRegistry) ended(key id, done chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if close(done); r.ending[key] == done {
		delete(r.ending, key)
	}
}

// release undoes one open. The last opener stays the source's: until run has seen that
// it is to stop it may ask for the settings.
func (r *urlRegistry) release(key id, s *urlSource, l *URLList) {
	r.mu.Lock()
	s.mu.Lock()
	last := len(s.openers) == 1
	if last {
		s.closed = true
		s.stop()
		delete(r.sources, key)
	} else {
		s.openers = slices.DeleteFunc(s.openers, func(o *URLList) bool { return o == l })
	}
	s.mu.Unlock()
	r.mu.Unlock()
	if !last {
		return
	}
	files.Wait(func() {
		s.wg.Wait()
		if s.temporary != "" {
			os.RemoveAll(s.temporary)
		}
	})
}

// Path returns the file of the list, which may not exist yet.
func (l *URLList) Path() string { return l.source.path }

// State returns what is known of the list.
func (l *URLList) State() URLState { return l.source.current() }

// Close ends the fetches of the list. The last Close of a shared list waits until a
// download has been given up, but not for a write that hangs, see files.Wait. It may be called more than once.
func (l *URLList) Close() { l.close() }

// URLStates returns the states of all open lists, sorted by name. It is safe for concurrent
// use.
func URLStates() []URLState { return fetched.states() }

func (r *urlRegistry) states() (all []URLState) {
	r.mu.Lock()
	for _, s := range r.sources {
		all = append(all, s.current())
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b URLState) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (s *urlSource) current() URLState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// settings returns what holds for all openers together. They change: a reload opens a list before it closes it.
func (s *urlSource) settings() (c URLConfig, reading Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, reading = s.openers[0].cfg, s.openers[0].reading
	c.Refresh, c.MaxBytes = cmp.Or(c.Refresh, DefaultRefresh), cmp.Or(c.MaxBytes, DefaultMaxBytes)
	for _, l := range s.openers[1:] {
		c.Refresh = min(c.Refresh, cmp.Or(l.cfg.Refresh, DefaultRefresh))
		c.MaxBytes = max(c.MaxBytes, cmp.Or(l.cfg.MaxBytes, DefaultMaxBytes))
		c.Wide = c.Wide || l.cfg.Wide
	}
	reading.Fetched, reading.Wide = true, c.Wide
	return c, reading
}

// publish stores the state after an attempt and reports what it means to the operator.
func (s *urlSource) publish(state URLState, events ...URLEvent) {
	s.mu.Lock()
	s.state = state
	report := func(URLEvent) {}
	if !s.closed {
		report = s.openers[0].report
	}
	s.mu.Unlock()
	for _, e := range events {
		report(e)
	}
}

// URLEvent is a change that a caller may want to log: Failed, Recovered or Waiting.
type URLEvent interface{ event() }

// URLFailed says that an attempt brought no list that is believed. It is reported for the
// first of several failures in a row, and when doubt of a list follows another failure or
// the other way round.
type URLFailed struct {
	URLState             // Error says why, without secrets
	Doubt    *DoubtError // a list came and is not believed; else nil
	Disk     bool        // it cannot be saved
	TooLong  bool        // it has more than MaxBytes
}

// URLRecovered says that a fetch has succeeded after failures.
type URLRecovered struct{ URLState }

// URLWaiting says that a list has waited for a minute to be downloaded, since others are. It is
// reported once for each wait.
type URLWaiting struct {
	URLState
	Others []string // the names of these
}

func (URLFailed) event()    {}
func (URLWaiting) event()   {}
func (URLRecovered) event() {}

// printable makes the words of a server fit for a log line and a state file.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxURLState)], "")
}

// The defaults and the ranges of URLConfig.
const (
	DefaultRefresh  = 24 * time.Hour
	MinRefresh      = time.Minute
	MaxRefresh      = 30 * 24 * time.Hour
	DefaultMaxBytes = 256 << 20
	MinMaxBytes     = 1 << 10
	MaxMaxBytes     = 4 << 30
)

// maxEntries is the most entries of a list. They take 170 MiB.
const maxEntries = 20_000_000

// URLConfig says which list is fetched, and how. It is comparable.
type URLConfig struct {
	URL       string        // https or http, see ParseURL; "": no list
	DB        string        // directory whose subdirectory Folder holds the list; "": a temporary one, until the last Close
	Resolvers string        // "address:port" of name servers, joined by a space; "": the system's
	Refresh   time.Duration // between fetches, ± 30 %; zero: DefaultRefresh
	Wide      bool          // lines that match every name or a whole public suffix count, too
	MaxBytes  int64         // of the list, compressed and decompressed; zero: DefaultMaxBytes
}

// URLFolder is the subdirectory of a db that holds lists by URL.
const URLFolder = "own"

// ParseURL checks the URL of a list. Its errors do not quote the URL.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL cannot be read: write one such as https://lists.example.org/hosts.txt, with % as %25")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("a list is fetched by https or http, not by " + u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host: write one such as https://lists.example.org/hosts.txt")
	case u.Fragment != "":
		return nil, errors.New("the URL has a #: leave out what follows it, servers never see that")
	}
	return u, nil
}

// Name returns what logs, metrics and answers call the list: the URL without its query and
// its user information, which may be secret. If it has one of these, four digits of a hash
// keep lists apart that differ only in them.
func (c URLConfig) Name() string {
	u, err := ParseURL(c.URL)
	if err != nil {
		return "(not a URL)"
	}
	name := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if u.User != nil || u.RawQuery != "" {
		name += "#" + c.hash()[:4]
	}
	return name
}

// Path returns the file of the list, or "" without a DB.
func (c URLConfig) Path() string {
	if c.DB == "" {
		return ""
	}
	return c.pathIn(filepath.Join(c.DB, URLFolder))
}

func (c URLConfig) pathIn(dir string) string { return filepath.Join(dir, c.hash()+listSuffix) }

func (c URLConfig) hash() string {
	sum := sha256.Sum256([]byte(c.URL))
	return hex.EncodeToString(sum[:16])
}

const listSuffix = ".list"

// stateOf returns the path of the state file of a list file.
func stateOf(path string) string { return strings.TrimSuffix(path, listSuffix) + ".json" }

// secrets returns the parts of the URL that must be in no text, as they are written and
// as they are decoded.
func secrets(text string) (all []string) {
	u, err := ParseURL(text)
	if err != nil {
		return []string{text}
	}
	all = append(all, u.RawQuery)
	if q, err := url.QueryUnescape(u.RawQuery); err == nil {
		all = append(all, q)
	}
	for _, values := range u.Query() {
		all = append(all, values...)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		all = append(all, u.User.String(), u.User.Username(), password)
	}
	return all
}
