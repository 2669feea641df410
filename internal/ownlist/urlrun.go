package ownlist

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// run fetches the list whenever it is due, until ctx ends.
func (s *urlSource) run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	s.adopt() // a run before this one may have saved its state after Open
	s.clean()
	refresh := func() time.Duration {
		c, _ := s.settings()
		return c.Refresh
	}
	start, r := wall(), rand.Float64()
	// The clock may be set back, and a wait that began anew with each look would not end in time.
	next := func() time.Time { return firstDue(s.current(), refresh(), earlier(start, wall()), r) }
	for s.sleep(ctx, next) {
		next = func() time.Time {
			c, _ := s.settings()
			state := s.current()
			at := due(state, c.Refresh, wall())
			if state.Failing() && s.failed.URL != "" && s.failed != c { // a reload: perhaps it mends what was wrong
				at = earlier(at, state.Tried.Add(minPause))
			}
			return at
		}
		if s.adopt() && next().After(wall()) {
			continue
		}
		leave := s.registry.downloads.take(ctx, s, func(others []string) { s.publish(s.current(), URLWaiting{s.current(), others}) })
		if leave == nil {
			return
		}
		s.attempt(ctx, leave)
		leave()
	}
}

// sleep waits until a time, which it asks for each minute: the clock, and the settings,
// may change. It returns false if ctx has ended.
func (s *urlSource) sleep(ctx context.Context, until func() time.Time) bool {
	for {
		wait := until().Sub(wall())
		timer := time.NewTimer(max(0, min(wait, time.Minute)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		if wait <= time.Minute {
			return true
		}
	}
}

// adopt takes over the state that another process has saved since our last attempt, and
// reports whether there is one. Several processes may share a db.
func (s *urlSource) adopt() bool {
	mine := s.current()
	state, err := readURLState(s.name, s.path)
	if err != nil || !state.Tried.After(mine.Tried) || state.Tried.After(wall()) {
		return false
	}
	state.Next = state.Next.Add(minPause + rand.N(maxSpread)) // the other process comes first the next time, too
	s.publish(state)
	return true
}

// attempt fetches the list once, unless ctx ends. It calls slow if others should not wait for
// this download.
func (s *urlSource) attempt(ctx context.Context, slow func()) {
	c, reading := s.settings()
	before := s.current()
	before.recall(s.path)
	o := s.fetch(ctx, c, reading, before, slow)
	if ctx.Err() != nil && o.err != nil {
		s.giveUp(before)
		return
	}
	s.failed = c
	if _, refused := errors.AsType[*updater.StatusError](o.err); refused { // the server says when, whatever the settings
		s.failed = URLConfig{}
	}
	state := before.after(o, c, wall(), rand.Float64())
	if err := state.save(s.path); err != nil && o.err == nil {
		o.err = err
		state = before.after(o, c, wall(), rand.Float64())
	}
	s.publish(state, s.changes(before, state, o.err)...)
}

// giveUp takes back the note of an attempt that this process ended itself: it is not crashing,
// and the next start may ask at once.
func (s *urlSource) giveUp(before URLState) {
	if before.Tried.IsZero() {
		os.Remove(stateOf(s.path))
		return
	}
	_ = before.save(s.path) // else the next start waits for a minute
}

// fetchOutcome is what one attempt brought.
type fetchOutcome struct {
	err       error    // nil: the list, or that it has not changed
	answered  bool     // a server has answered
	unchanged bool     // the file is as it was
	came      URLState // of the list that came: validators, Bytes, Entries, Names
	doubt     *Doubt
}

// errKeep says that the file stays as it is. It is never seen.
var errKeep = errors.New("the list stays as it is")

// fetch asks for the list and replaces the file by what is believed.
func (s *urlSource) fetch(ctx context.Context, c URLConfig, reading Config, before URLState, slow func()) (o fetchOutcome) {
	o.doubt = before.Doubt
	if s.broken != nil {
		o.err = s.broken
		return o
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o750); err != nil {
		o.err = err
		return o
	}
	// Noted before it is sent: a crash while the list comes must not lead to the next request
	// at once. Without the note, the list could not be saved either.
	if err := before.begun(wall()).save(s.path); err != nil {
		o.err = err
		return o
	}
	ctx, alive, cancel := s.registry.limits.within(ctx, slow)
	defer cancel()
	d, err := get(ctx, s.registry.client(c.Resolvers), c, before, alive)
	o.answered = !isUnreached(err)
	switch {
	case err != nil:
	case d.unchanged:
		o.unchanged, o.doubt = true, nil
	default:
		err = s.take(d, reading, before, &o)
		d.close()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	o.err = err
	return o
}

// take writes the list that comes to a new file, judges it, and puts it in the place of
// the old one if it is believed.
func (s *urlSource) take(d *download, reading Config, before URLState, o *fetchOutcome) error {
	o.came = URLState{ETag: d.etag, LastModified: d.lastModified}
	var cause error // without the words of files.Replace, which would be about the disk
	err := files.Replace(s.path, func(w *os.File) error {
		sum, names, err := Survey(io.TeeReader(d.body, w), reading)
		if err != nil {
			cause = err
			return err
		}
		if o.came.Bytes, err = w.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
		o.came.Entries, o.came.Names = sum.Entries, names
		if o.doubt, cause = judge(before, sum, wall()); cause != nil {
			return cause
		}
		if o.unchanged = before.Bytes > 0 && before.Entries == sum.Entries && before.Names == names; o.unchanged {
			return errKeep
		}
		return nil
	})
	switch {
	case cause != nil:
		return cause
	case o.unchanged:
		return nil
	case err != nil:
		return err
	}
	Changed(s.path)
	return nil
}

// begun is the state while an attempt is under way. If it never ends, the next one comes after
// minPause.
func (s URLState) begun(now time.Time) URLState {
	s.Tried, s.Next = now, now.Add(minPause)
	return s
}

// after returns the state after an attempt. r is uniform in [0, 1).
func (s URLState) after(o fetchOutcome, c URLConfig, now time.Time, r float64) URLState {
	s.Tried, s.Doubt, s.Asked = now, o.doubt, time.Time{}
	if o.err == nil {
		s.Checked, s.Failures, s.Since, s.Error = now, 0, time.Time{}, ""
		s.Next = now.Add(refreshAfter(c.Refresh, r))
		if !o.unchanged {
			s.Bytes, s.Entries, s.Names, s.Changed = o.came.Bytes, o.came.Entries, o.came.Names, now
		}
		if o.came.ETag != "" || o.came.LastModified != "" || !o.unchanged {
			s.ETag, s.LastModified = o.came.ETag, o.came.LastModified
		}
		return s
	}
	if s.Failures++; s.Failures == 1 {
		s.Since = now
	}
	s.Error = wordsOf(o.err, c)
	var asked time.Duration
	if status, ok := errors.AsType[*updater.StatusError](o.err); ok {
		asked = status.RetryAfter
		s.Asked = now.Add(min(asked, maxRetryAfter))
	}
	s.Next = now.Add(retryAfter(s.Failures, o.answered, !s.Changed.IsZero(), asked, r))
	if doubt, ok := errors.AsType[*DoubtError](o.err); ok && !doubt.From.IsZero() { // ask soon after the list would be believed
		s.Next = earlier(s.Next, doubt.From.Add(time.Duration(r*float64(maxSpread))))
	}
	return s
}

// saying is what has been reported of the source.
type saying uint8

const (
	saidNothing saying = iota
	saidFailed
	saidDoubted
)

// changes returns the events of an attempt, and notes them as reported. The state of an
// earlier process counts as not reported: a log begins with each start.
func (s *urlSource) changes(before, after URLState, err error) []URLEvent {
	said := s.said
	doubt, doubted := errors.AsType[*DoubtError](err)
	switch {
	case err == nil:
		s.said = saidNothing
	case doubted:
		s.said = saidDoubted
	default:
		s.said = saidFailed
	}
	switch {
	case s.said == said && (err != nil || !before.Failing()):
		return nil
	case err == nil:
		return []URLEvent{URLRecovered{after}}
	}
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	_, long := errors.AsType[protocol.TooLongError](err)
	return []URLEvent{URLFailed{after, doubt, path || link, long}}
}

// clean removes unfinished files of a process that died. Another process that downloads now has written to
// its file within the limit for a server that stops sending, a minute.
func (s *urlSource) clean() {
	base := strings.TrimSuffix(filepath.Base(s.path), listSuffix)
	all, _ := os.ReadDir(filepath.Dir(s.path))
	for _, f := range all {
		if info, err := f.Info(); err == nil && strings.HasPrefix(f.Name(), base+".") && strings.HasSuffix(f.Name(), ".tmp") && time.Since(info.ModTime()) > 5*time.Minute {
			os.Remove(filepath.Join(filepath.Dir(s.path), f.Name()))
		}
	}
}

const (
	// maxSpread is the most that is added to the wait before the first fetch after a start, if
	// a good content is in force: many machines may start at once. It also keeps processes
	// with one db from fetching at the same time: the first one saves a state for the others.
	maxSpread = time.Minute
	// minPause is the least between two attempts, over restarts too: a loop of crashes must
	// not become a loop of requests.
	minPause = time.Minute
	// firstPause is the wait after the first attempt that reached no server.
	firstPause = 15 * time.Second
	// maxRetryAfter is the longest wait that a server can ask for.
	maxRetryAfter = 24 * time.Hour
)

// refreshAfter returns how long to wait after a success: refresh ± 30 %. r is uniform in
// [0, 1).
func refreshAfter(refresh time.Duration, r float64) time.Duration {
	return time.Duration(float64(refresh) * (0.7 + 0.6*r))
}

// retryAfter returns how long to wait after failures in a row, at least one. It is the
// back-off of lists of the server. While nothing is in force and no server has answered,
// it begins at firstPause, since at a boot the network is often late, and grows to half an
// hour: nobody is spared by waiting longer. asked is what the server asked for, or 0. r is
// uniform in [0, 1).
func retryAfter(failures int, answered, inForce bool, asked time.Duration, r float64) time.Duration {
	wait := updater.Backoff(failures, r)
	if !answered && !inForce {
		wait = min(wait, time.Duration(float64(firstPause<<min(failures-1, 6))*(r+1)))
	}
	return max(wait, min(asked, maxRetryAfter))
}

// firstDue returns when a list is fetched first after a start. While nothing is in force a back-off of our own is no reason to
// wait: perhaps the start mends what was wrong. r is uniform in [0, 1).
func firstDue(s URLState, refresh time.Duration, now time.Time, r float64) time.Time {
	if s.Bytes > 0 {
		return later(due(s, refresh, now), now).Add(time.Duration(r * float64(maxSpread)))
	}
	if s.Tried.After(now) { // the clock was wrong
		return now
	}
	return later(now, later(s.Tried.Add(minPause), earlier(s.Asked, s.Tried.Add(maxRetryAfter))))
}

// wall returns the time without its reading of the monotonic clock. Where both times have one, package time compares these:
// that clock stops while the machine sleeps, and is never set back.
func wall() time.Time { return time.Now().Round(0) }

// due returns when the next attempt is due. It is not later than the settings of now allow:
// they, and the clock, may have changed.
func due(s URLState, refresh time.Duration, now time.Time) time.Time {
	if s.Tried.After(now) {
		return now
	}
	if s.Failures == 0 {
		if latest := s.Checked.Add(refreshAfter(refresh, 1)); s.Next.After(latest) {
			return earlier(s.Next, later(latest, s.Tried.Add(minPause))) // an attempt may be under way
		}
	}
	if latest := s.Tried.Add(maxRetryAfter); s.Failures > 0 && s.Next.After(latest) {
		return latest
	}
	return s.Next
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
