package block

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var pausedThen = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestParsePausesRefusesWhatIsNotAPause(t *testing.T) {
	for name, text := range map[string]string{
		"prose":         "all names pass\n",
		"another word":  "all 2026-11-22T12:00:00Z 2026-11-22T13:00:00Z for-ever\n",
		"no time":       "all 12:00 2026-11-22T13:00:00Z once\n",
		"longer than 7": "all 2026-11-22T12:00:00Z 2026-11-29T12:00:01Z once\n",
		"a huge file":   strings.Repeat("#\n", maxPauseFile),
	} {
		all, err := ParsePauses([]byte(text))
		testkit.Equal(t, name+": pauses, and an error", []any{all == nil, err != nil}, []any{true, true})
	}
}

// A pause of the future is not in force: the clock of a router begins in the past.
func TestAPauseIsActiveFromItsBeginToItsEnd(t *testing.T) {
	p := Pause{AllBlocks, pausedThen, pausedThen.Add(time.Hour), true}
	for at, want := range map[time.Duration]bool{
		-24 * time.Hour: false, -61 * time.Second: false, -30 * time.Second: true, 0: true,
		time.Hour - time.Nanosecond: true, time.Hour: false,
	} {
		testkit.Equal(t, fmt.Sprintf("after %v", at), p.Active(pausedThen.Add(at)), want)
	}
}

// A router's clock may be hours ahead until it is set.
func TestAPauseThatAClockHasEndedDoesNotComeBack(t *testing.T) {
	var events []string
	p := Pause{AllBlocks, pausedThen, pausedThen.Add(time.Hour), true}
	f := &pauseFolder{report: func(e pauseEvent) { events = append(events, string(e.what)) }, pauses: []Pause{p}}
	for i, step := range []struct {
		at   time.Duration
		want string
	}{{-time.Hour, ""}, {0, "began"}, {-30 * time.Second, "began"}, {-2 * time.Hour, "began ended"}, {10 * time.Minute, "began ended"}} {
		f.update(pausedThen.Add(step.at))
		testkit.Equal(t, fmt.Sprintf("step %d", i), strings.Join(events, " "), step.want)
	}
	testkit.Equal(t, "it is told to be in force", f.counts(p), false)
}

// pauseWatch is a folder under a clock that a test moves.
type pauseWatch struct {
	t   *testing.T
	dir string
	r   *pauseRegistry
	f   *pauseFolder

	mu     sync.Mutex
	events []string // guarded by mu
}

func watchingPauses(t *testing.T, test func(w *pauseWatch)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &pauseWatch{t: t, dir: dir}
		w.open()
		test(w)
		w.r.Close(w.f)
	})
}

// open opens the folder as a new process does.
func (w *pauseWatch) open() {
	w.r = newPauses(func(e pauseEvent) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, string(e.what))
	})
	w.f = w.r.Open(w.dir)
}

func (w *pauseWatch) write(text string) {
	w.t.Helper()
	testkit.Must(w.t, os.WriteFile(PauseFile(w.dir), []byte(text), 0o600))
}

// pauses writes pauses that begin now.
func (w *pauseWatch) pauses(zone string, length time.Duration, keep bool) {
	w.t.Helper()
	now := time.Now()
	w.write(string(FormatPauses([]Pause{{zone, now, now.Add(length), keep}})))
}

// after lets time pass, and then is want.
func (w *pauseWatch) after(d time.Duration, what, events string, paused bool) {
	w.t.Helper()
	time.Sleep(d)
	w.want(what, events, paused)
}

func (w *pauseWatch) want(what, events string, paused bool) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, got := w.f.Until([]string{"example.org."})
	testkit.Equal(w.t, what+": events, and whether it is paused", []any{strings.Join(w.events, " "), got}, []any{events, paused})
	w.events = nil
}

// The query sees the end at once, and not at the next look at the file.
func TestAPauseBeginsWithinASecondAndEndsByItself(t *testing.T) {
	watchingPauses(t, func(w *pauseWatch) {
		w.after(time.Minute, "without a file", "", false)
		w.pauses(AllBlocks, 10*time.Second+pauseInterval/2, false)
		w.after(pauseInterval, "after a second", "began", true)
		w.after(10*time.Second-pauseInterval/2-time.Nanosecond, "before the end", "", true)
		w.after(time.Nanosecond, "at the end", "", false)
		w.after(pauseInterval, "after the end", "ended", false)
	})
}

func TestAPauseOfAnotherZoneDoesNotCount(t *testing.T) {
	watchingPauses(t, func(w *pauseWatch) {
		w.pauses("example.net.", time.Minute, false)
		w.after(pauseInterval, "another zone", "began", false)
		w.pauses("example.org.", time.Hour, false)
		w.after(pauseInterval, "this zone", "began ended", true)
		w.pauses("example.org.", 2*time.Hour, false)
		w.after(pauseInterval, "longer", "began", true)
		w.write(heading)
		w.after(pauseInterval, "off", "ended", false)
	})
}

func TestOnlyAPauseThatIsKeptSurvivesARestart(t *testing.T) {
	for _, keep := range []bool{false, true} {
		watchingPauses(t, func(w *pauseWatch) {
			w.pauses(AllBlocks, time.Hour, keep)
			w.after(pauseInterval, "before", "began", true)

			f := w.r.Open(w.dir) // a reload
			w.r.Close(w.f)
			w.f = f
			w.want("reload", "", true)
			w.r.Close(w.f)
			w.open()
			w.want("restart", map[bool]string{true: "began", false: "dropped"}[keep], keep)
			if !keep {
				w.pauses(AllBlocks, time.Hour, false)
				w.after(pauseInterval, "a new one", "began", true)
			}
		})
	}
}

func TestADamagedFilePausesNothing(t *testing.T) {
	watchingPauses(t, func(w *pauseWatch) {
		w.pauses(AllBlocks, time.Hour, false)
		w.after(pauseInterval, "before", "began", true)
		w.write("nonsense\n")
		w.after(3*pauseInterval, "damaged", "failed ended", false)
		testkit.Must(t, os.Remove(PauseFile(w.dir)))
		testkit.Must(t, os.Mkdir(PauseFile(w.dir), 0o700))
		w.after(3*pauseInterval, "a folder", "failed", false)
		if os.Geteuid() <= 0 {
			return // root may read every file, and Windows has no such modes
		}
		testkit.Must(t, os.Remove(PauseFile(w.dir)))
		w.pauses(AllBlocks, time.Hour, false)
		testkit.Must(t, os.Chmod(PauseFile(w.dir), 0))
		w.after(2*pauseInterval, "unreadable", "failed", false)
		w.after(time.Minute, "still unreadable", "", false)
		testkit.Must(t, os.Chmod(PauseFile(w.dir), 0o600)) // which changes neither its size nor its time
		w.after(2*pauseInterval, "readable", "began", true)
	})
	watchingPauses(t, func(w *pauseWatch) {
		w.r.Close(w.f)
		w.dir += "/none"
		w.open()
		w.after(pauseInterval, "a folder that does not exist", "", false)
	})
}

func TestPausedUntilDoesNotAllocate(t *testing.T) {
	f := new(pauseFolder)
	f.active.Store(&[]Pause{{"example.org.", time.Now(), time.Now().Add(time.Hour), false}})
	zones := []string{"example.net.", "."}
	testkit.Equal(t, "allocations", testing.AllocsPerRun(100, func() { f.Until(zones) }), 0)
}

// People may write the file by hand, in their time zone.
func TestAPauseInATimeZoneOfItsOwnStaysTheSameWhenTheFileIsReadAgain(t *testing.T) {
	zone := time.FixedZone("", 19800) // package time makes a new zone for each that is not of whole hours
	line := func() string {
		now := time.Now().In(zone)
		return "all " + now.Format(time.RFC3339) + " " + now.Add(time.Hour).Format(time.RFC3339) + " once\n"
	}
	watchingPauses(t, func(w *pauseWatch) {
		w.r.Close(w.f)
		text := line()
		w.write(text)
		w.open()
		w.after(2*pauseInterval, "of before the start", "dropped", false)
		w.write("# a comment\n" + text)
		w.after(2*pauseInterval, "of before the start, read again", "", false)
		text = line()
		w.write(text)
		w.after(2*pauseInterval, "a new one", "began", true)
		w.write("# another comment\n" + text)
		w.after(2*pauseInterval, "the new one, read again", "", true)
	})
}

// FuzzParsePauses: no file pauses for longer than MaxPause, and what is read stays the same when it is written again.
func FuzzParsePauses(f *testing.F) {
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	f.Add(FormatPauses([]Pause{{Zone: AllBlocks, From: now, Until: now.Add(time.Hour)}, {Zone: "example.org.", From: now, Until: now.Add(MaxPause), Keep: true}}))
	f.Add([]byte("all 2027-01-31T12:00:00Z 2027-01-31T13:00:00+01:00 once"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		all, err := ParsePauses(raw)
		if err != nil {
			testkit.Equal(t, "pauses with an error", all, nil)
			return
		}
		for _, p := range all {
			if p.Until.Sub(p.From) > MaxPause || p.Active(p.Until) || p.Active(p.From.Add(-2*maxClockStep)) {
				t.Errorf("%q: got %+v", raw, p)
			}
		}
		again, err := ParsePauses(FormatPauses(all))
		same := slices.EqualFunc(again, all, func(a, b Pause) bool {
			return a.Zone == b.Zone && a.Keep == b.Keep && a.From.Equal(b.From) && a.Until.Equal(b.Until)
		})
		if len(FormatPauses(all)) <= maxPauseFile && (err != nil || !same) {
			t.Errorf("%q: got %+v, %v, want %+v", raw, again, err, all)
		}
	})
}

// As on a network drive that does not answer. A report that does not return stands in for the disk.
func TestClosingAPauseDoesNotWaitForADiskThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		r := newPauses(func(pauseEvent) { <-hung })
		f := r.Open(dir)
		testkit.Must(t, os.WriteFile(PauseFile(dir), []byte("no pause\n"), 0o600))
		time.Sleep(2 * pauseInterval)
		begun := time.Now()
		r.Close(f)
		testkit.Equal(t, "the time that it took", time.Since(begun), files.WaitLimit)
		time.AfterFunc(time.Hour, func() { close(hung) })
		r.Close(r.Open(dir))
		testkit.Between(t, "the time until a second watcher began, while the first one went on", time.Since(begun), time.Hour, 2*time.Hour)
	})
}

// A pause that ends while another one holds for the same server blocks is no end of anything.
func TestBlockingIsInForceAgainWhereNothingElsePausesIt(t *testing.T) {
	lines := testkit.Capture(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newPauses(reportPause)
		f := r.Open(dir)
		defer r.Close(f)
		pause := func(zone string, length time.Duration) {
			_, err := ChangePauses(t.Context(), dir, zone, length, false, time.Now())
			testkit.Must(t, err)
			time.Sleep(pauseInterval)
		}
		pause("a.example.", time.Hour)
		pause(AllBlocks, time.Hour)
		testkit.WantNone(t, lines.String(), "in force again")
		pause("a.example.", 2*time.Hour)
		time.Sleep(time.Hour)
		want := "in force again for all server blocks, but not for the server blocks for a.example.: the pause has ended"
		testkit.WantParts(t, lines.Only(t, "in force again"), want)
	})
}

// A pause of before a restart, which does not continue, is not said to be in force.
func TestAPauseThatWasDroppedIsNotSaidToBeInForce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, err := ChangePauses(t.Context(), dir, AllBlocks, time.Hour, false, time.Now())
		testkit.Must(t, err)
		r := newPauses(func(pauseEvent) {})
		f := r.Open(dir)
		defer r.Close(f)
		b := New(config.Config{Block: config.Block{Zones: []string{"a.example."}}, Engine: config.Engine{DB: dir}})
		b.pauses.Store(f)
		p := &Process{blocks: []*Block{b}}
		for length, want := range map[time.Duration]int{10 * time.Minute: 1, 0: 0} {
			all, err := p.Pause(t.Context(), "a.example", length, false)
			testkit.Equal(t, length, []any{len(all), err}, []any{want, nil})
		}
	})
}
