package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// medium is a Shared in memory. Each process has a view of its own on it.
type medium struct {
	mu        sync.Mutex
	documents map[string][]byte
	heads     map[string]Head
	files     map[string][]byte
	changes   map[string][]byte
	holder    *view
	pulled    int // files, not changes
}

func newMedium() *medium {
	return &medium{documents: map[string][]byte{}, heads: map[string]Head{}, files: map[string][]byte{}, changes: map[string][]byte{}}
}

// view is one process with a medium.
type view struct {
	*medium
	away   error                // of all calls
	cut    time.Time            // when it was cut off; zero: never
	ended  []context.CancelFunc // of what Held has returned
	settle time.Duration        // after Held
	own    error                // of swaps of the process that may fetch
}

const (
	deadLease = 30 * time.Second // the right to fetch stays with a process that was cut off
	heldLease = 20 * time.Second // that process itself believes to have it
)

// Cut puts the medium out of reach, for ever.
func (v *view) Cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away != nil {
		return
	}
	v.away, v.cut = errors.New("the store is out of reach"), time.Now()
	for _, end := range v.ended {
		time.AfterFunc(heldLease, end)
	}
}

func (v *view) TryLock() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h := v.holder; v.away == nil && (h == nil || !h.cut.IsZero() && time.Since(h.cut) >= deadLease) {
		v.holder = v
	}
	return v.away == nil && v.holder == v
}

func (v *view) Unlock() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder == v && v.away == nil {
		v.holder = nil
	}
}

func (v *view) Held(ctx context.Context) (held context.Context, cancel context.CancelFunc, settled time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	held, cancel = context.WithCancel(ctx)
	if v.ended = append(v.ended, cancel); v.away != nil {
		cancel()
	}
	return held, cancel, time.Now().Add(v.settle)
}

func (v *view) Now() (time.Time, time.Duration) { return time.Now().Round(0), 0 }

func (v *view) Read(name string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.documents[name], v.away
}

func (v *view) Swap(name string, old, next []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.away != nil:
		return v.away
	case !bytes.Equal(v.documents[name], old):
		return ErrConflict
	}
	v.documents[name] = next
	return nil
}

func (v *view) Leased() Medium { return leasedView{v} }

// leasedView is the Medium of the process that may fetch.
type leasedView struct{ *view }

func (v leasedView) Swap(name string, old, next []byte) error {
	if v.own != nil {
		return v.own
	}
	v.mu.Lock()
	held := v.holder == v.view
	v.mu.Unlock()
	if !held { // another process has the right to fetch
		return errTest
	}
	return v.view.Swap(name, old, next)
}

func (v *view) Head(list string) (Head, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.heads[list]
	return h, ok
}

func (v *view) Publish(h Head, file func(io.Writer) error, change []byte) error {
	var all bytes.Buffer
	if err := file(&all); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away != nil || v.holder != v {
		return errTest
	}
	v.heads[h.List], v.files[h.List], v.changes[h.List] = h, all.Bytes(), change
	return nil
}

func (v *view) File(h Head) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pulled++
	return v.files[h.List], v.away
}

func (v *view) Change(h Head) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changes[h.List], v.away
}

func (v *view) Rekey(string) {}

// sharing returns an Updater of one list with a folder of its own, and its view.
func sharing(t *testing.T, m *medium, fetch func() (*Update, error)) (*Updater, *view) {
	t.Helper()
	store := openStore(t, t.TempDir())
	v := &view{medium: m}
	store.Share(v)
	return newUpdater(t, single(fetch), newScheduleOf(t, store), se), v
}

// leads gives the right to fetch to one Updater, so that the other one follows it.
func leads(t *testing.T, leader, follower *Updater) {
	t.Helper()
	must(t, leader.acquire(t.Context()))
	locked, err := follower.cfg.Store.tryLock()
	must(t, err)
	testkit.Equal(t, "two have the right to fetch", locked, false)
}

func contentOf(t testing.TB, version string, values ...uint32) List {
	t.Helper()
	l, _, err := Apply(List{Name: se}, fullOf(version, values...), 1000)
	must(t, err)
	return l
}

type single func() (*Update, error)

func (f single) Fetch(_ context.Context, _ []Want, take func(int, *Update)) (time.Duration, error) {
	update, err := f()
	if err == nil {
		take(0, update)
	}
	return 0, err
}

func fullOf(version string, values ...uint32) *Update {
	raw, _ := binary.Append(nil, binary.BigEndian, values) // numbers of a fixed size have no error
	sum := sha256.Sum256(raw)
	return &Update{Version: []byte(version), Checksum: sum[:], MinimumWait: time.Hour, Additions: []Entries{{Width: 4, Count: len(values), Reader: bytes.NewReader(raw)}}}
}

func TestWhoLosesTheRightToFetchWaitsForItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		u, v := sharing(t, newMedium(), func() (*Update, error) { asked.Add(1); return fullOf("1", 1, 2), nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- u.Run(ctx) }()
		time.Sleep(150 * time.Minute) // within the second wait of an hour
		synctest.Wait()
		before := asked.Load()
		for _, end := range v.ended {
			end()
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		testkit.Equal(t, "fetched before the right ended, and after", []bool{before > 0, asked.Load() > before}, []bool{true, true})
		cancel()
		testkit.Is(t, "the end of Run", <-ended, context.Canceled)
	})
}

func TestNoRequestThatTheSharedStoreDoesNotConfirm(t *testing.T) {
	for name, test := range map[string]struct {
		own   error // of the shared store
		later bool  // a process that was cut off reports a later clock just before the request
		want  int
	}{
		"confirmed":     {nil, false, 1},
		"refused":       {errors.New("fenced"), false, 0},
		"alone":         {ErrAlone, false, 1},
		"a later clock": {nil, true, 0},
	} {
		m, asked := newMedium(), 0
		u, v := sharing(t, m, func() (*Update, error) { asked++; return fullOf("1", 1, 2), nil })
		u.sleep = func(context.Context, time.Duration) error { return nil }
		must(t, u.acquire(t.Context()))
		v.own = test.own
		before := u.cfg.Schedule.list(se)
		if test.later {
			other, _ := sharing(t, m, nil)
			other.cfg.Schedule.mu.Lock()
			other.cfg.Schedule.state.Fetch.Clock = Clock{NotBefore: time.Now().Add(time.Hour), Wait: time.Hour}
			other.cfg.Schedule.mu.Unlock()
			other.cfg.Schedule.look()
		}
		u.update(t.Context())
		testkit.Equal(t, name+": requests", asked, test.want)
		hold := u.cfg.Schedule.FetchHold([]string{se})
		if test.want == 0 && (hold.Failures != 0 || u.cfg.Schedule.list(se) != before || test.later && time.Until(hold.Until) < 59*time.Minute) {
			t.Errorf("%s: it counts as a failure, or there is no wait: %+v", name, hold)
		}
		u.release()
	}
}

func TestAFollowerTakesOverListsAndClocks(t *testing.T) {
	inBubble(t, "in turn", func(t *testing.T) {
		m, next := newMedium(), fullOf("1", 1, 2, 3)
		leader, _ := sharing(t, m, func() (*Update, error) { return next, nil })
		follower, _ := sharing(t, m, func() (*Update, error) { t.Error("the follower asks"); return nil, errTest })
		leads(t, leader, follower)
		defer leader.release()
		for i, content := range []*Update{next, fullOf("2", 1, 3, 4, 9)} {
			next = content
			leader.cfg.Schedule.forward(2*time.Hour, leader.cfg.Schedule.searchClock()) // the wait is over
			leader.update(t.Context())
			follower.follow()
			got, want := follower.lists[se], leader.lists[se]
			testkit.Equal(t, fmt.Sprint("the checksum of content ", i), got.Checksum, want.Checksum)
			testkit.Equal(t, fmt.Sprint("the version of content ", i), string(got.Version), strconv.Itoa(1+i))
			testkit.Equal(t, "the version in the folder", savedVersion(t, follower), string(want.Version))
			due, wantDue := follower.cfg.Schedule.due([]string{se}), leader.cfg.Schedule.due([]string{se})
			testkit.Between(t, "the follower would ask after the leader by", due.Sub(wantDue), 0, time.Second)
		}
		testkit.Equal(t, "whole files that were read, then the difference", m.pulled, 1)
		wait := time.Until(newScheduleOf(t, follower.cfg.Store).due([]string{se}))
		testkit.Between(t, "the wait in the folder of the follower", wait, 59*time.Minute, time.Hour)
	})
	inBubble(t, "from who fetches next, if the store has lost them", func(t *testing.T) {
		m := newMedium()
		u, _ := sharing(t, m, func() (*Update, error) { return fullOf("1", 1, 2), nil })
		must(t, u.acquire(t.Context()))
		u.update(t.Context())
		u.release()
		clear(m.heads)
		must(t, u.acquire(t.Context()))
		defer u.release()
		testkit.Equal(t, "entries of the list in the store, before a fetch", m.heads[se].Entries, 2)
	})
	// Between the reading of its clock and of the shared one a process may be stopped.
	inBubble(t, "a wait, though the process was stopped", func(t *testing.T) {
		m, until := newMedium(), time.Now().Add(time.Hour)
		for _, stop := range []time.Duration{0, time.Minute} {
			store := openStore(t, t.TempDir())
			store.Share(&stoppedView{&view{medium: m}, stop})
			s := newScheduleOf(t, store)
			if stop == 0 {
				s.changeSearch(fail(until), noError(t))
			}
			s.lookAtSearches() // as a search does
			testkit.Between(t, "the wait", s.SearchHold().Until.Sub(until), 0, stop+time.Hour)
			s.Flush()
		}
	})
	// The folder of one is read-only since its first content. What it fetches later is not as old as its file.
	inBubble(t, "a content that cannot be saved", func(t *testing.T) {
		m, next := newMedium(), fullOf("1", 1, 2, 3)
		fetch := func() (*Update, error) { return next, nil }
		broken, _ := sharing(t, m, fetch)
		other, _ := sharing(t, m, fetch)
		var saved time.Time
		for i, leader := range []*Updater{broken, other, broken, broken} {
			follower := other
			if leader == other {
				follower = broken
			}
			time.Sleep(2 * time.Hour) // no wait is left
			next = fullOf(strconv.Itoa(i), 1, 2, uint32(i+3))
			leads(t, leader, follower)
			leader.update(t.Context())
			follower.follow()
			testkit.Equal(t, "the version of the other one", string(follower.lists[se].Version), strconv.Itoa(i))
			follower.cfg.Store.unlock()
			leader.release()
			broken.cfg.Store.disk.SyncFile = func(*os.File) error { return errTest }
			if i == 0 {
				saved = broken.received(se)
			}
			must(t, os.Chtimes(broken.cfg.Store.listPath(se), saved, saved)) // nor can its time be changed
		}
	})
}

// stoppedView is a process that is stopped for a while whenever it wants to know the time.
type stoppedView struct {
	*view
	stop time.Duration
}

func (v *stoppedView) Now() (time.Time, time.Duration) {
	time.Sleep(v.stop)
	return v.view.Now()
}

// A folder that was used without a shared store has times of a clock that may have been wrong.
func TestAContentFromTheFutureGivesWay(t *testing.T) {
	for _, saved := range []time.Duration{-time.Hour, 0, time.Hour} {
		m := newMedium()
		leader, _ := sharing(t, m, func() (*Update, error) { return fullOf("2", 1, 2), nil })
		follower, _ := sharing(t, m, nil)
		must(t, follower.cfg.Store.SaveList(heldList(t, se, 1, 2, 3)))
		at := time.Now().Add(saved)
		must(t, os.Chtimes(follower.cfg.Store.listPath(se), at, at))
		follower.Load()
		leads(t, leader, follower)
		leader.update(t.Context())
		follower.follow()
		testkit.Equal(t, "the version", string(follower.lists[se].Version), "2")
		leader.release()
	}
}

func TestAFollowerRefuses(t *testing.T) {
	good := func() *medium {
		m := newMedium()
		leader, _ := sharing(t, m, func() (*Update, error) { return fullOf("2", 1, 2, 3), nil })
		must(t, leader.acquire(t.Context()))
		leader.update(t.Context())
		leader.release()
		return m
	}
	have := contentOf(t, "1", 7, 8)
	head := func(change func(h *Head)) func(*Updater, *medium) {
		return func(_ *Updater, m *medium) { h := m.heads[se]; change(&h); m.heads[se] = h }
	}
	older := head(func(h *Head) { h.Received = time.Now().Add(-time.Hour) })
	for name, spoil := range map[string]func(u *Updater, m *medium){
		"a damaged file":      func(_ *Updater, m *medium) { m.files[se][len(m.files[se])/2] ^= 1 },
		"half a file":         func(_ *Updater, m *medium) { m.files[se] = m.files[se][:len(m.files[se])/2] },
		"another checksum":    head(func(h *Head) { h.Checksum = make([]byte, 32) }),
		"the file of another": head(func(h *Head) { h.Version = []byte("x") }),
		"entries of another sum": func(u *Updater, m *medium) {
			l := contentOf(t, "2", 5, 6)
			l.Checksum = [32]byte(m.heads[se].Checksum)
			var file bytes.Buffer
			must(t, u.cfg.Store.listFile(l)(&file))
			m.files[se] = file.Bytes()
		},
		"too many entries": func(u *Updater, _ *medium) { u.cfg.MaxEntries = 2 },
		"an older content": older,
		"a damaged difference": func(u *Updater, m *medium) {
			head(func(h *Head) { h.From = have.Checksum[:] })(u, m)
			m.changes[se], m.files[se] = []byte("garbage"), nil
		},
	} {
		m, told := good(), 0
		follower, _ := sharing(t, m, nil)
		follower.lists[se] = have
		must(t, follower.save(have))
		must(t, os.Chtimes(follower.cfg.Store.listPath(se), time.Time{}, time.Now().Add(-time.Minute)))
		follower.cfg.Report = func(Event) { told++ }
		spoil(follower, m)
		testkit.Equal(t, name+": it is taken over", follower.pull(), false)
		testkit.Equal(t, name+": the version", string(follower.lists[se].Version), "1")
		testkit.Equal(t, name+": there is trouble", follower.pullTrouble != "", name != "an older content")
		follower.pull()
		testkit.Between(t, name+": told", told, 0, 1)
	}
	m := good()
	older(nil, m)
	follower, _ := sharing(t, m, nil)
	testkit.Equal(t, "a good content is taken over", follower.pull(), true)
	testkit.Equal(t, "trouble with it", follower.pullTrouble, "")
	testkit.Between(t, "received after", follower.received(se).Sub(m.heads[se].Received), -time.Second, time.Second)
}

// Others would take it for a list of this server, with a version that it does not know.
func TestAListOfThePredecessorIsNotShared(t *testing.T) {
	for _, takenOver := range []bool{true, false} {
		m, l := newMedium(), contentOf(t, "1", 7, 8)
		leader, _ := sharing(t, m, nil)
		must(t, leader.acquire(t.Context()))
		l.TakenOver = takenOver
		leader.lists[se] = l
		leader.shareLists()
		_, shared := m.heads[se]
		testkit.Equal(t, fmt.Sprintf("taken over: %t, shared", takenOver), shared, !takenOver)
		leader.release()
	}
}

func TestTheDifferenceLeadsFromOneContentToTheOther(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	content := func() []uint32 {
		var values []uint32
		for value := range uint32(600) {
			if random.IntN(3) == 0 { // many are in both
				values = append(values, value)
			}
		}
		return values
	}
	for range 300 {
		from, to := content(), content()
		base, target := contentOf(t, "1", from...), contentOf(t, "2", to...)
		raw := difference(base.Set, target.Set, 1<<20)
		if raw == nil && len(from)+len(to) == 0 {
			continue
		}
		update, err := parseDifference(raw, Head{Version: []byte("2"), Checksum: target.Checksum[:]})
		must(t, err)
		got, _, err := Apply(base, update, 1000)
		must(t, err)
		testkit.Equal(t, fmt.Sprintf("the checksum, from %v to %v", from, to), got.Checksum, target.Checksum)
	}
	testkit.Equal(t, "a difference of entries of several widths", difference(heldList(t, "x-8b", 0).Set, heldList(t, se, 0).Set, 1<<20), nil)
}

// Counts of a damaged difference may be as large as four bytes allow, and on 32 bits so is an int.
func TestADifferenceWithAbsurdCountsIsRefused(t *testing.T) {
	for name, counts := range map[string][3]uint32{
		"removals beyond 31 bits":         {4, 1 << 31, 0},
		"removals that are -1 in 32 bits": {4, 1<<32 - 1, 1},
		"additions beyond 31 bits":        {4, 0, 1<<32 - 1},
		"bytes that are 0 in 32 bits":     {4, 0, 1 << 30},
		"both are 0 in 32 bits":           {32, 1 << 30, 1 << 27},
		"a width beyond 31 bits":          {1<<32 - 4, 0, 1},
	} {
		raw, err := binary.Append(nil, binary.BigEndian, counts)
		must(t, err)
		testkit.Equal(t, name+" are refused", errOf(parseDifference(raw, Head{})) != nil, true)
	}
}

func FuzzParseDifference(f *testing.F) {
	f.Add([]byte{})
	f.Add(difference(&prefixset.Set{}, &prefixset.Set{}, 10))
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4})
	f.Add([]byte{0, 0, 0, 4, 255, 255, 255, 255, 0, 0, 0, 1})
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 64, 0, 0, 0})
	base := contentOf(f, "1", 1, 2, 3)
	f.Fuzz(func(t *testing.T, raw []byte) {
		u, err := parseDifference(raw, Head{Version: []byte("2"), Checksum: make([]byte, 32)})
		if err != nil {
			return
		}
		_, _, err = Apply(base, u, 1000)
		testkit.WantError(t, err) // the checksum is another one
	})
}

// A network file system that does not answer has no locks either. Only errors of this process pass for sure.
func TestAFileSystemThatTimesOutIsNotWaitedFor(t *testing.T) {
	for err, want := range map[error]bool{syscall.EMFILE: true, syscall.ENFILE: true, syscall.ETIMEDOUT: false, syscall.ENOLCK: false} {
		testkit.Equal(t, err, temporary(&os.PathError{Op: "open", Path: lockFile, Err: err}), want)
	}
}
