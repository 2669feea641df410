package block

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// A pause lets every name pass for a while. The command line writes a file into the
// folder of the lists, and a running server looks at it twice a second.
//
//	safebrowsing pause 10m ──▶ FormatPauses ──▶ file ──stat every ½ s──▶ pauseFolder ──▶ query ──▶ pauseFolder.Until
//	                                                                       └─▶ one line each in the log
//
// Who may write to the folder can pause. A pause ends by itself. It does not survive a
// restart of the server unless it says so. A file that cannot be read pauses nothing.

// MaxPause is the longest pause.
const MaxPause = 7 * 24 * time.Hour

// AllBlocks is the Zone of a pause of all server blocks.
const AllBlocks = "all"

// Pause is one line of the file.
type Pause struct {
	Zone  string    `json:"zone"` // of the server blocks, fully qualified and in lower case; or AllBlocks
	From  time.Time `json:"-"`
	Until time.Time `json:"until"`
	Keep  bool      `json:"keep"` // also after a restart of the server
}

// Where says which server blocks are paused.
func (p Pause) Where() string {
	if p.Zone == AllBlocks {
		return "all server blocks"
	}
	return "the server blocks for " + p.Zone
}

// maxClockStep is how far the clock may be set back without ending a pause. A machine
// whose clock begins in the past, as on many routers, must not be paused by an
// old file until its clock is set.
const maxClockStep = time.Minute

// Active reports whether a pause is in force.
func (p Pause) Active(now time.Time) bool {
	return !now.Add(maxClockStep).Before(p.From) && now.Before(p.Until)
}

// pauseFileName is the name of the file in the folder of the lists.
const pauseFileName = "paused"

// pausedUntil returns when the longest pause of a server block with these zones ends, and whether
// there is one at now.
func pausedUntil(all []Pause, zones []string, now time.Time) (until time.Time, paused bool) {
	for _, p := range all {
		if (p.Zone == AllBlocks || slices.Contains(zones, p.Zone)) && p.Active(now) && p.Until.After(until) {
			until, paused = p.Until, true
		}
	}
	return until, paused
}

// PauseFile returns the path of the file in a folder.
func PauseFile(folder string) string { return filepath.Join(folder, pauseFileName) }

// maxPauseFile is the most bytes of a file.
const maxPauseFile = 64 << 10

const (
	onceWord = "once"
	keepWord = "keep"
	heading  = "# Names pass: zone, from, until. Written by: safebrowsing pause\n"
)

// FormatPauses returns the content of the file. ParsePauses is its reverse.
func FormatPauses(all []Pause) []byte {
	var b strings.Builder
	b.WriteString(heading)
	for _, p := range all {
		word := onceWord
		if p.Keep {
			word = keepWord
		}
		fmt.Fprintln(&b, p.Zone, p.From.UTC().Format(time.RFC3339Nano), p.Until.UTC().Format(time.RFC3339Nano), word)
	}
	return []byte(b.String())
}

// ParsePauses returns the pauses of a file, in its order. If one line is wrong, it returns none.
func ParsePauses(text []byte) (all []Pause, err error) {
	if len(text) > maxPauseFile {
		return nil, fmt.Errorf("it is longer than %d bytes", maxPauseFile)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		p, err := parsePause(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("the line %.80q is not a pause: %w", strings.TrimSpace(line), err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePause(words []string) (p Pause, err error) {
	if len(words) != 4 || words[3] != onceWord && words[3] != keepWord {
		return p, fmt.Errorf("it must be a zone, two times, and %s or %s", onceWord, keepWord)
	}
	p = Pause{Zone: words[0], Keep: words[3] == keepWord}
	if p.From, err = time.Parse(time.RFC3339, words[1]); err != nil {
		return p, err
	}
	if p.Until, err = time.Parse(time.RFC3339, words[2]); err != nil {
		return p, err
	}
	p.From, p.Until = p.From.UTC(), p.Until.UTC() // pauses are compared with ==
	if p.Until.Sub(p.From) > MaxPause {
		return p, fmt.Errorf("it is longer than %v", MaxPause)
	}
	return p, nil
}

// pauseEvent is what a caller may want to log.
type pauseEvent struct {
	what pauseChange
	Pause
	file   string  // of pauseFailed
	err    error   // of pauseFailed
	others []Pause // of pauseEnded: that are in force
}

// pauseChange is what has become of a pause.
type pauseChange string

const (
	pauseBegan   pauseChange = "began"   // it is in force, or has a new end
	pauseEnded   pauseChange = "ended"   // queries have seen the end at its second; the event comes up to half a second later
	pauseDropped pauseChange = "dropped" // one of before the start of the process does not continue
	pauseFailed  pauseChange = "failed"  // the file cannot be used, and pauses nothing: once for each version of it
)

// pauseInterval is how often a file is looked at.
const pauseInterval = 500 * time.Millisecond

// pauseRegistry holds the folders of a process. It is safe for concurrent use.
type pauseRegistry struct {
	report func(pauseEvent)

	mu      sync.Mutex
	folders map[string]*pauseFolder // never removed: a reload must not end a pause; guarded by mu
}

// newPauses returns a pauseRegistry. The goroutines of its folders call report, each one call
// at a time; it must not call Open or Close.
func newPauses(report func(pauseEvent)) *pauseRegistry {
	return &pauseRegistry{report: report, folders: make(map[string]*pauseFolder)}
}

// pauseFolder is a folder with a file of pauses. It is safe for concurrent use.
type pauseFolder struct {
	file   string
	report func(pauseEvent)
	active atomic.Pointer[[]Pause] // nil: none

	opened int // calls of Open without a Close; guarded by pauseRegistry.mu
	stop   context.CancelFunc
	ended  chan struct{} // closed when the goroutine has ended; nil: it has never begun

	// Used only by the goroutine, and before its start:
	version fs.FileInfo // of pauses; nil: there is no file, or it could not be read
	trouble say.Trouble // with reading it
	pauses  []Pause     // of the file

	stale atomic.Pointer[[]Pause] // of before the process, or ended by a clock that was set back: they do not count; nil: none
}

// counts reports whether a pause of the file may be in force: it is not stale. The nil pauseFolder has none that is.
func (f *pauseFolder) counts(p Pause) bool {
	if f == nil {
		return true
	}
	stale := f.stale.Load()
	return stale == nil || !slices.Contains(*stale, p)
}

// Open watches a folder, which need not exist, until Close. The first Open of the process
// ignores the pauses that are there already, unless they are to be kept.
func (r *pauseRegistry) Open(folder string) *pauseFolder {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, known := r.folders[folder]
	if !known {
		f = &pauseFolder{file: PauseFile(folder), report: r.report}
		r.folders[folder] = f
	}
	if f.opened++; f.opened > 1 {
		return f
	}
	if f.ended != nil { // Close may have given up waiting for it
		<-f.ended
	}
	now := time.Now()
	if f.read(); !known {
		f.drop(now)
	}
	f.update(now)
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	ended := make(chan struct{})
	f.ended = ended
	go func() {
		defer close(ended)
		files.Every(ctx, pauseInterval, func() {
			f.read()
			f.update(time.Now())
		})
	}()
	return f
}

// readPauses returns a folder as it is now, which is not watched.
func readPauses(folder string) *pauseFolder {
	f := &pauseFolder{file: PauseFile(folder), report: func(pauseEvent) {}}
	f.read()
	f.update(time.Now())
	return f
}

// drop ignores from now on the pauses that are there, except those that are to be kept.
func (f *pauseFolder) drop(now time.Time) {
	stale := slices.DeleteFunc(slices.Clone(f.pauses), func(p Pause) bool { return p.Keep })
	f.stale.Store(&stale)
	for _, p := range stale {
		if p.Active(now) {
			f.report(pauseEvent{what: pauseDropped, Pause: p})
		}
	}
}

// Close undoes one Open. The last one stops the goroutine and waits for it, but not for a
// disk that hangs, see files.Wait.
func (r *pauseRegistry) Close(f *pauseFolder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.opened--; f.opened == 0 {
		f.stop()
		ended := f.ended
		files.Wait(func() { <-ended })
	}
}

// Until returns when the pause of a server block with these zones ends, and whether there
// is one. It takes no lock and does not allocate. A nil pauseFolder has none.
func (f *pauseFolder) Until(zones []string) (until time.Time, paused bool) {
	if f == nil {
		return until, false
	}
	active := f.active.Load()
	if active == nil {
		return until, false
	}
	return pausedUntil(*active, zones, time.Now())
}

// read reads the file if it has changed.
func (f *pauseFolder) read() {
	version, err := os.Stat(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		f.version, f.pauses, f.trouble = nil, nil, say.Trouble{}
		return
	}
	if err == nil && files.Same(version, f.version) {
		return
	}
	f.version, f.pauses = version, nil
	if err == nil {
		f.pauses, err = readPauseFile(f.file)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err  // the event names the file
		f.version = nil // a chmod, which ends this, changes neither size nor time
	}
	if began, _ := f.trouble.Note(err); began {
		f.report(pauseEvent{what: pauseFailed, file: f.file, err: err})
	}
}

// readPauseFile returns the pauses of a file.
func readPauseFile(path string) ([]Pause, error) {
	text, err := files.Read(path, maxPauseFile)
	for _, short := range []error{files.ErrIrregular, files.ErrSize} { // the event names the file
		if errors.Is(err, short) {
			err = short
		}
	}
	if err != nil {
		return nil, err
	}
	return ParsePauses(text)
}

// update publishes the pauses in force, and reports which ones began and ended.
func (f *pauseFolder) update(now time.Time) {
	var before, active []Pause
	if p := f.active.Load(); p != nil {
		before = *p
	}
	for _, p := range f.pauses {
		if p.Active(now) && f.counts(p) {
			active = append(active, p)
		}
	}
	if slices.Equal(before, active) {
		return
	}
	var stale []Pause
	if p := f.stale.Load(); p != nil {
		stale = slices.Clone(*p)
	}
	for _, p := range before {
		if !p.Active(now) && now.Before(p.Until) { // the clock was set back: when it comes there again, nobody has asked for it
			stale = append(stale, p)
		}
	}
	f.stale.Store(&stale)
	if len(active) > 0 {
		f.active.Store(&active)
	} else {
		f.active.Store(nil)
	}
	for _, p := range active {
		if !slices.Contains(before, p) {
			f.report(pauseEvent{what: pauseBegan, Pause: p})
		}
	}
	for _, p := range before {
		if !slices.ContainsFunc(active, func(a Pause) bool { return a.Zone == p.Zone || a.Zone == AllBlocks }) {
			f.report(pauseEvent{what: pauseEnded, Pause: p, others: active})
		}
	}
}

// pauses are the folders in which the command line writes that names pass.
var pauses = newPauses(reportPause)

// watchPauses looks for pauses of the block. The result ends that.
func (b *Block) watchPauses() (end func()) {
	folder := b.Config.PauseFolder()
	if folder == "" {
		return func() {}
	}
	f := pauses.Open(folder)
	b.pauses.Store(f)
	return func() { pauses.Close(f) }
}

// reportPause writes one line when a pause begins, and one when it ends.
func reportPause(e pauseEvent) {
	switch e.what {
	case pauseBegan:
		log.Warningf("Blocking is PAUSED until %s for %s: every name passes. To end the pause: safebrowsing pause off", say.Time(e.Until), e.Where())
	case pauseEnded:
		except := ""
		for _, other := range e.others {
			if e.Zone == AllBlocks {
				except += ", but not for " + other.Where()
			}
		}
		log.Infof("Blocking is in force again for %s%s: the pause has ended", e.Where(), except)
	case pauseDropped:
		log.Infof("Blocking is in force for %s: the pause until %s was for the process before this one. To keep a pause over a restart: safebrowsing pause -keep", e.Where(), say.Time(e.Until))
	case pauseFailed:
		log.Errorf("Cannot read %s: %v. Blocking is not paused; write the file with safebrowsing pause", e.file, e.err)
	}
}
