package updater_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// TestAYearOfRelaysWithoutViolation is TestAYearWithoutViolation for two relays with a folder each, which share a
// store in memory: one of them fetches, and the other one takes over when it dies, ends, or is cut off from the
// store. To the server they are one client, so a wait that the first one was given holds for the second one.
func TestAYearOfRelaysWithoutViolation(t *testing.T) {
	testkit.Long(t)
	total := sumOfYears(t)
	for version, speaks := range versions {
		for _, seed := range seedsOfYears(max(1, *yearSeeds/8)) {
			t.Run(fmt.Sprint(version, "/", seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					y := newYear(t, speaks, dir, seed)
					y.shared = newCommonStore()
					total.live(y)
					if y.takeovers == 0 {
						t.Error("no relay has taken over")
					}
				})
			})
		}
	}
}

// takeOver starts the other relay, which follows for some time, and ends the first one.
func (y *year) takeOver() {
	first := y.current
	y.folder, y.other = y.other, y.folder
	y.startProcess()
	time.Sleep(time.Duration(y.chance.Int64N(int64(3 * time.Minute))))
	first.stopSearching() // its clock of searches is known to the second one after a second
	switch y.chance.IntN(3) {
	case 0:
		y.kill(first)
	case 1:
		first.stop()
	case 2:
		first.view.cut()
		time.Sleep(leaseOfHeld + time.Second) // its request, if there was one, has ended
		y.server.ClientStarted()
		time.Sleep(time.Duration(y.chance.Int64N(int64(2 * time.Minute))))
		y.kill(first)
	}
	y.server.ClientStarted() // a content that the first one did not publish is lost
	time.Sleep(leaseOfDead + 2*time.Second)
	y.takeovers++
	y.beginSearching()
}

// kill ends a relay at once. Its folder stays as it is at this moment.
func (y *year) kill(l *life) {
	y.folders++
	copyFolder(y.t, l.dir, y.folderDir(y.folders))
	y.other = y.folders
	l.dead.Store(true)
	l.view.cut()
	l.stop()
}

const (
	// leaseOfDead is how long the right to fetch stays with a relay that is away, and
	// leaseOfHeld how long that relay itself believes to have it.
	leaseOfDead = 30 * time.Second
	leaseOfHeld = 20 * time.Second
)

var errCut = errors.New("the store is out of reach")

// commonStore is what the relays of a year share. Each of them has a view on it.
type commonStore struct {
	mu        sync.Mutex
	documents map[string][]byte
	heads     map[string]updater.Head
	files     map[string][]byte // by checksum
	changes   map[string][]byte // by checksum
	holder    *commonView
}

func newCommonStore() *commonStore {
	return &commonStore{documents: make(map[string][]byte), heads: make(map[string]updater.Head), files: make(map[string][]byte), changes: make(map[string][]byte)}
}

// commonView implements updater.Shared for one relay.
type commonView struct {
	*commonStore
	away  time.Time            // since when the store is out of reach; zero: it is not
	ended []context.CancelFunc // of what Held has returned
}

// cut puts the store out of reach, for ever.
func (v *commonView) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.away.IsZero() {
		return
	}
	v.away = time.Now()
	for _, end := range v.ended {
		time.AfterFunc(leaseOfHeld, end)
	}
}

func (v *commonView) TryLock() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.holder
	if v.away.IsZero() && (h == nil || !h.away.IsZero() && time.Since(h.away) >= leaseOfDead) {
		v.holder = v
	}
	return v.away.IsZero() && v.holder == v
}

func (v *commonView) Unlock() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder == v && v.away.IsZero() {
		v.holder = nil
	}
}

func (v *commonView) Held(ctx context.Context) (context.Context, context.CancelFunc, time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	held, cancel := context.WithCancel(ctx)
	v.ended = append(v.ended, cancel)
	if !v.away.IsZero() {
		cancel()
	}
	return held, cancel, time.Now().Add(5 * time.Second)
}

func (v *commonView) Now() time.Time { return time.Now().Round(0) }

func (v *commonView) Read(document string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.away.IsZero() {
		return v.documents[document], errCut
	}
	return v.documents[document], nil
}

func (v *commonView) Swap(document string, old, next []byte) error {
	return v.swap(document, false, old, next)
}

func (v *commonView) swap(document string, own bool, old, next []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.away.IsZero() || own && v.holder != v:
		return errCut
	case !bytes.Equal(v.documents[document], old):
		return updater.ErrConflict
	}
	v.documents[document] = next
	return nil
}

func (v *commonView) Leased() updater.Medium { return leasedView{v} }

// leasedView is the Medium of the relay that may fetch.
type leasedView struct{ *commonView }

func (v leasedView) Swap(document string, old, next []byte) error {
	return v.swap(document, true, old, next)
}

func (v *commonView) Head(list string) (updater.Head, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.heads[list]
	return h, ok
}

func (v *commonView) Publish(h updater.Head, file func(io.Writer) error, change []byte) error {
	var whole bytes.Buffer
	if err := file(&whole); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.away.IsZero() || v.holder != v {
		return errCut
	}
	v.heads[h.List], v.files[h.List], v.changes[h.List] = h, whole.Bytes(), change
	return nil
}

func (v *commonView) File(h updater.Head) ([]byte, error)   { return v.part(v.files, h) }
func (v *commonView) Change(h updater.Head) ([]byte, error) { return v.part(v.changes, h) }

func (v *commonView) part(of map[string][]byte, h updater.Head) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.away.IsZero() {
		return nil, errCut
	}
	return of[h.List], nil
}

func (v *commonView) Rekey(string) {}
