package updater

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// What holds for every document: copies are joined in any order, as often as they come, and what one of them knows is not lost.

// savedClocks returns a document of clocks in the folder of a store, and whether there is one.
func savedClocks(t *testing.T, s *Store, document string) (state scheduleState, ok bool) {
	t.Helper()
	now := time.Now()
	raw, err := folder{s, false}.Read(document)
	must(t, err)
	if raw == nil {
		return state, false
	}
	state, err = parseSchedule(raw, now, s.moment(now))
	must(t, err)
	return state, true
}

// histories is how many random histories a test lives through.
var histories = flag.Int("histories", 400, "random histories of a document")

// lattice tests a join on copies that random histories leave.
func lattice[T any](t *testing.T, copies func(chance *rand.Rand) []T, join func(a, b T) T) {
	t.Helper()
	same := func(seed int, law string, a, b T) {
		one, err := json.Marshal(a)
		other, otherErr := json.Marshal(b)
		if must(t, errors.Join(err, otherErr)); !bytes.Equal(one, other) {
			t.Fatalf("history %d: the join is not %s:\n%s\n%s", seed, law, one, other)
		}
	}
	for seed := range *histories {
		chance := rand.New(rand.NewPCG(uint64(seed), 7))
		all := copies(chance)
		pick := func() T { return all[chance.IntN(len(all))] }
		for range 20 {
			a, b, c := pick(), pick(), pick()
			same(seed, "commutative", join(a, b), join(b, a))
			same(seed, "associative", join(a, join(b, c)), join(join(a, b), c))
			ab := join(a, b)
			same(seed, "idempotent", join(ab, ab), ab)
			same(seed, "absorbing", join(ab, a), ab)
		}
	}
	t.Logf("%d histories, %d triples of copies", *histories, 20**histories)
}

// countCopies returns copies of a count that three writers change, on dates that come and go.
func countCopies(chance *rand.Rand) (all []budgetDays) {
	now := time.Date(2026, 11, 20, 23, 0, 0, 0, time.Local)
	copies := make([]budgetDays, 3)
	// An earlier version, or an operator, has written without parts.
	copies[chance.IntN(3)] = budgetDays{Day: dateOf(now), Spent: map[string]int{dateOf(now): chance.IntN(9)}, Recent: recent{slotOf(now): chance.IntN(9)}}
	for range 12 {
		now = now.Add(time.Duration(chance.IntN(150)-40) * 10 * time.Minute)
		w := chance.IntN(3)
		d := copies[w]
		switch chance.IntN(4) {
		case 0:
			d = d.join(copies[chance.IntN(3)])
		case 1:
			d.Uses = []lookup.Use{{Date: dateOf(now), Clients: chance.IntN(3), Kept: chance.IntN(9), Refused: chance.IntN(9)}}
		}
		name := fmt.Sprint(w)
		d, _ = d.on(dateOf(now), name)
		p := d.part(name)
		d = d.with(name, max(0, p.Spent+chance.IntN(8)-2), p.Hour.plus(chance.IntN(8)-2, now))
		copies[w] = d
		raw, _ := json.Marshal(d)
		back, err := parseBudget(raw)
		if err != nil {
			panic(err)
		}
		all = append(all, back)
	}
	for i := range all { // as a join leaves them: what is empty is not there
		all[i] = all[i].join(budgetDays{})
	}
	return all
}

func TestCountsAreJoinedInAnyOrder(t *testing.T) {
	lattice(t, countCopies, budgetDays.join)
}

// Three processes count on two media, which lose what they had; processes crash, and clocks step. No paid search is forgotten.
func TestNoJoinForgetsAPaidSearch(t *testing.T) {
	searches := 0
	for seed := range *histories {
		m := newCountModel(rand.New(rand.NewPCG(uint64(seed), 8)))
		for range 60 {
			m.step()
		}
		testkit.Equal(t, fmt.Sprint("wrong in history ", seed), m.wrong, "")
		searches += m.sent
	}
	t.Logf("%d histories, %d searches", *histories, searches)
}

type joiner[T any] interface{ join(T) T }

// copyOf is a copy of a document, and what it has heard of.
type copyOf[D joiner[D], K comparable, V joiner[V]] struct {
	doc   D
	heard map[K]V
}

func (c copyOf[D, K, V]) join(o copyOf[D, K, V]) copyOf[D, K, V] {
	return copyOf[D, K, V]{c.doc.join(o.doc), joined(c.heard, o.heard, V.join)}
}

// hear adds what is known of one.
func (c *copyOf[D, K, V]) hear(of K, what V) { c.heard = joined(c.heard, map[K]V{of: what}, V.join) }

// paid is how many searches a writer had paid for in all when it wrote.
type paid int

func (p paid) join(other paid) paid { return max(p, other) }

type copyOfCount = copyOf[budgetDays, string, paid]

// countModel is the model: all on one date, or the clock would forgive.
type countModel struct {
	chance *rand.Rand
	now    time.Time
	names  [3]string
	known  [3]copyOfCount
	own    [3]int
	media  [2]copyOfCount
	starts int
	wrong  string
	sent   int // searches in all
}

func newCountModel(chance *rand.Rand) *countModel {
	m := &countModel{chance: chance, now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)}
	for i := range m.names {
		m.start(i)
	}
	return m
}

// start replaces a process by a new one, which knows what the media know.
func (m *countModel) start(i int) {
	m.starts++
	m.names[i], m.own[i] = fmt.Sprint("w", m.starts), 0
	m.known[i] = m.media[0].join(m.media[1])
	m.settle(i)
}

// settle continues on the date of the clock, and checks the law.
func (m *countModel) settle(i int) {
	k, all := &m.known[i], 0
	k.doc, _ = k.doc.on(dateOf(m.now), m.names[i])
	for _, n := range k.heard {
		all += int(n)
	}
	if got := k.doc.spent(); got < all {
		m.wrong += fmt.Sprintf("process %d counts %d searches, and has heard of %d: %+v", i, got, all, k.doc)
	}
}

func (m *countModel) step() {
	i := m.chance.IntN(3)
	k, name := &m.known[i], m.names[i]
	switch m.chance.IntN(10) {
	case 0: // a crash
		m.start(i)
	case 1: // a step of the clock, within the date
		m.now = time.Date(2026, 11, 20, m.chance.IntN(24), 0, 0, 0, time.Local)
	case 2: // a medium brings back an old copy
		m.media[m.chance.IntN(2)] = copyOfCount{}
	case 3, 4, 5: // searches, on one medium before they are sent, or in memory where none can be reached
		n := 1 + m.chance.IntN(5)
		m.own[i] += n
		m.sent += n
		k.doc = k.doc.with(name, m.own[i]+m.chance.IntN(3), k.doc.part(name).Hour.plus(n, m.now))
		k.hear(name, paid(m.own[i]))
	case 6: // reservations come back
		k.doc = k.doc.with(name, m.own[i], k.doc.part(name).Hour)
	default: // both are brought together
		at := &m.media[m.chance.IntN(2)]
		*k = k.join(*at)
		m.settle(i)
		if m.chance.IntN(4) > 0 { // the write does not fail
			*at = *k
		}
	}
	m.settle(i)
}

// clockCopies returns copies of clocks that three writers change. Clocks step, so times come in any order.
func clockCopies(chance *rand.Rand) (all []scheduleState) {
	copies := make([]scheduleState, 3)
	for i := range copies {
		copies[i] = scheduleState{Asker: "a", clockSet: clockSet{Lists: map[string]ListClock{}}}
	}
	if chance.IntN(2) == 0 { // of a version without numbers
		copies[0].Fetch.Clock = Clock{NotBefore: day(chance), Failures: chance.IntN(4), Asking: chance.IntN(2) == 0}
	}
	number := uint64(0)
	for range 14 {
		w := chance.IntN(3)
		s := copies[w].clone()
		if chance.IntN(3) == 0 {
			s = s.join(copies[chance.IntN(3)])
		}
		now, name := day(chance), []string{"w0", "w1", "w2"}[w]
		before := s.clone()
		switch chance.IntN(9) {
		case 0, 1:
			number++
			s.Fetch = s.Fetch.noting(name, number, now, func(int) time.Duration { return time.Duration(chance.IntN(100)) * time.Minute })
		case 2:
			s.Fetch, _ = s.Fetch.answered(name, number)
			s.Fetch.Clock = Clock{Wait: time.Hour, NotBefore: day(chance)}
			s.Advice = advice{"x", []string{"", "p", "q"}[chance.IntN(3)]}
		case 3:
			s.Fetch.Clock = s.Fetch.failed(now, time.Duration(chance.IntN(100))*time.Minute, 0).because(now, errStatus[[]int{401, 404, 500}[chance.IntN(3)]])
		case 4:
			s.Fetch.Clock = s.Fetch.notSent(now, chance.Float64(), errTest)
		case 5:
			s.Fetch.Clock = s.Fetch.renewed()
		case 6:
			s.Fetch.Away = away{}
		case 7:
			s.Lists["x-4b"] = s.Lists["x-4b"].next(now, time.Duration(chance.IntN(100))*time.Minute, true)
		case 8:
			s.Lists["x-4b"] = s.Lists["x-4b"].rejected(now, 0, chance.Float64(), errTest)
		}
		s.Fetch.Clock = s.Fetch.after(before.Fetch.Clock, now)
		if list, ok := s.Lists["x-4b"]; ok {
			list.Clock = list.after(before.Lists["x-4b"].Clock, now)
			s.Lists["x-4b"] = list
		}
		copies[w] = s
		all = append(all, s)
	}
	for i := range all { // as a join leaves them
		all[i] = all[i].join(scheduleState{Asker: "a"})
	}
	return all
}

func day(chance *rand.Rand) time.Time {
	return time.Date(2026, 11, 20, 0, chance.IntN(24*60), 0, 0, time.UTC)
}

func TestClocksAreJoinedInAnyOrder(t *testing.T) {
	lattice(t, clockCopies, scheduleState.join)
}

// Three processes ask on two media. They crash, media are away or bring an old copy back, and clocks step. None asks before the end of a
// back-off that it has heard of, unless a later request ended that; nor while a request that it has heard of may have failed.
func TestNoJoinAllowsAnEarlyRequest(t *testing.T) {
	asked := 0
	for seed := range *histories {
		m := newClockModel(rand.New(rand.NewPCG(uint64(seed), 9)))
		for range 80 {
			m.step()
		}
		testkit.Equal(t, fmt.Sprint("wrong in history ", seed), m.wrong, "")
		asked += m.requests
	}
	t.Logf("%d histories, %d requests", *histories, asked)
	testkit.Between(t, "requests", asked, *histories, math.MaxInt)
}

// outcome is what a request means for others, as it really was.
type outcome struct {
	until time.Time // nobody may ask before
	ended bool      // it was answered; otherwise it may have failed
}

func (o outcome) join(other outcome) outcome {
	if other.ended {
		return other
	}
	return o
}

// copyOfClock is a copy of a clock, and the requests that it has heard of.
type copyOfClock = copyOf[asked, int, outcome]

// modelProcess is one process. By how much its clock is wrong files do not show, see moment.
type modelProcess struct {
	name    string
	known   copyOfClock
	asking  int // the request that is under way; 0: none
	number  uint64
	attempt uint64
}

type clockModel struct {
	chance           *rand.Rand
	now              time.Time
	processes        [3]modelProcess
	media            [2]copyOfClock
	starts, requests int
	wrong            string
}

func newClockModel(chance *rand.Rand) *clockModel {
	m := &clockModel{chance: chance, now: time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)}
	for i := range m.processes {
		m.start(i)
	}
	return m
}

func (m *clockModel) start(i int) {
	m.starts++
	m.processes[i] = modelProcess{name: fmt.Sprint("w", m.starts), known: m.media[0].join(m.media[1])}
}

func (m *clockModel) step() {
	i := m.chance.IntN(3)
	p := &m.processes[i]
	switch m.chance.IntN(12) {
	case 0: // a crash, perhaps on the answer
		m.start(i)
	case 1: // a medium brings back an old copy, or is empty
		m.media[m.chance.IntN(2)] = copyOfClock{}
	case 2, 3:
		m.now = m.now.Add(time.Duration(m.chance.IntN(90)) * time.Minute)
	case 4: // a step back: what was until a time lasts longer
		m.now = m.now.Add(-time.Duration(m.chance.IntN(20)) * time.Minute)
	case 5, 6, 7:
		m.ask(p)
	case 8, 9:
		m.answer(p)
	default:
		at := &m.media[m.chance.IntN(2)]
		p.known = p.known.join(*at)
		if m.chance.IntN(4) > 0 { // the write does not fail
			*at = p.known
		}
	}
}

// ask sends a request if the clock of the process allows it.
func (m *clockModel) ask(p *modelProcess) {
	if p.asking > 0 || p.known.doc.held().NotBefore.After(m.now) {
		return
	}
	for request, o := range p.known.heard {
		if o.until.After(m.now) {
			m.wrong += fmt.Sprintf("%s asks at %s, but after request %d nobody may ask before %s: %+v", p.name, m.now, request, o.until, p.known.doc)
			return
		}
	}
	m.requests++
	p.asking, p.number = m.requests, p.number+1
	p.known.doc = p.known.doc.noting(p.name, p.number, m.now, func(failures int) time.Duration { return Backoff(failures, 0) })
	p.attempt = p.known.doc.Attempt
	p.known.hear(p.asking, outcome{p.known.doc.Notes[p.name].Until, false})
}

// answer ends the request that is under way.
func (m *clockModel) answer(p *modelProcess) {
	if p.asking == 0 {
		return
	}
	before := p.known.doc.Clock
	a, _ := p.known.doc.answered(p.name, p.number)
	var until time.Time
	switch m.chance.IntN(3) {
	case 0: // a success with a wait
		wait := time.Duration(m.chance.IntN(60)) * time.Minute
		until = m.now.Add(wait)
		if a.FailedIn <= p.attempt {
			a.Clock = Clock{Wait: wait}
		}
		a.NotBefore = latest(a.NotBefore, until)
	case 1: // a failure
		until = m.now.Add(Backoff(a.Failures+1, 0))
		a.Clock = a.failed(m.now, Backoff(a.Failures+1, 0), 0).because(m.now, errTest)
	case 2: // it was not sent
		a.Clock = a.notSent(m.now, 0, errTest)
	}
	a.Clock = a.after(before, m.now)
	p.known.doc = a
	p.known.hear(p.asking, outcome{until, true})
	p.asking = 0
}

// Who writes a medium may name ever more writers and lists. What is known stays so short that it can be read from its file.
func TestCopiesThatNameEverMoreTakeNoMemory(t *testing.T) {
	l, s := newLedger(t, nil), newScheduleOf(t, nil)
	day, long := dateOf(time.Now()), strings.Repeat("x", 100_000)
	for i := range 100 {
		name := fmt.Sprint(long, i)
		l.mu.Lock()
		l.meet(budgetDays{Day: day, Spent: map[string]int{day: 1}, Parts: map[string]map[string]part{day: {name: {Change: 1, Spent: 1}}}}, inShared)
		l.mu.Unlock()
		s.mu.Lock()
		s.meet(scheduleState{clockSet: clockSet{Lists: map[string]ListClock{name: {}}, Fetch: asked{Notes: map[string]note{name: {Number: 1}}}}}, inShared)
		s.mu.Unlock()
	}
	for what, value := range map[string]any{"count": l.days, "schedule": s.state} {
		raw, err := json.Marshal(value)
		must(t, err)
		testkit.Between(t, "bytes of a "+what, len(raw), 1<<20, maxSmall)
	}
}

// Whatever a Shared has filled it with, what was saved in the folder is known after a restart.
func TestWhatAFullDocumentSaysOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := quick(openStore(t, t.TempDir()))
		day, until := dateOf(time.Now()), time.Now().Add(time.Hour)
		full := func(size int) string { return strings.Repeat("x", maxJoined-size-20) }
		size := func(value any) int { raw, err := json.Marshal(value); must(t, err); return len(raw) }
		l := newLedger(t, store)
		copyOf := func(name string) budgetDays {
			return budgetDays{Day: day, Spent: map[string]int{day: 5}, Parts: map[string]map[string]part{day: {name: {Change: 1, Spent: 1}}}}
		}
		l.mu.Lock()
		l.meet(copyOf(full(size(copyOf("")))), inShared)
		l.mu.Unlock()
		must(t, errors.Join(spenderOf(l, 100).search(t), l.Flush()))
		testkit.Equal(t, "spent", saved(t, store.dir), 6)
		s := ownedSchedule(t, store.dir)
		s.mu.Lock()
		other := scheduleState{clockSet: clockSet{Lists: map[string]ListClock{"": {}}}}
		other.Lists = map[string]ListClock{full(size(s.state.join(other))): {}}
		s.meet(other, inShared)
		s.mu.Unlock()
		must(t, s.change(func(state *scheduleState) {
			state.Fetch.NotBefore, state.Fetch.Cause = until, strings.Repeat("x", maxCause)
		}))
		testkit.Between(t, "the next request, after", newScheduleOf(t, store).due([]string{se}).Sub(until), -time.Minute, time.Minute)
	})
}

// Three processes search with one key and one budget, on folders and a Shared. One medium loses what it had or brings an old copy back;
// processes crash, also on an answer; clocks step. Yet no search comes before the end of a wait that the server gave, or above the budget.
func TestThreeProcessesOnTwoMediaAskNoSoonerAndNoMoreThanOne(t *testing.T) {
	sent, refused, crashes := 0, 0, 0
	for _, flaky := range []string{"the shared store", "the folders"} {
		for seed := range *histories / 20 {
			inBubble(t, fmt.Sprintf("%s, history %d", flaky, seed), func(t *testing.T) {
				m := newWorldModel(t, flaky == "the folders", rand.New(rand.NewPCG(uint64(seed), 10)))
				for range 120 {
					m.step()
				}
				m.end()
				sent, refused, crashes = sent+m.sent, refused+m.refused, crashes+m.crashes
			})
		}
	}
	t.Logf("%d histories: %d searches sent, %d refused, %d crashes", *histories/20*2, sent, refused, crashes)
	testkit.Between(t, "the rarest of these, or the histories are too quiet", min(sent, refused, crashes), *histories/2, math.MaxInt)
}

const modelBudget = 12

// worldModel is the model; it is the server, too.
type worldModel struct {
	t       *testing.T
	chance  *rand.Rand
	shared  *medium
	folders bool     // they are flaky, and each process has its own; otherwise one is common
	dirs    []string // of the processes
	begun   time.Time
	old     map[string][]byte // a copy of what was shared
	writers [3]*modelWriter

	until                  time.Time      // no search before
	today                  map[string]int // searches sent, by date
	sent, refused, crashes int
}

type modelWriter struct {
	view     *view
	store    *Store
	schedule *Schedule
	ledger   *Ledger
	search   lookup.Searcher
	dead     bool
}

func newWorldModel(t *testing.T, folders bool, chance *rand.Rand) *worldModel {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	m := &worldModel{t: t, chance: chance, shared: newMedium(), folders: folders, begun: time.Now(), today: make(map[string]int)}
	common := t.TempDir()
	for i := range m.writers {
		m.dirs = append(m.dirs, common)
		if folders {
			m.dirs[i] = t.TempDir()
		}
		m.start(i)
	}
	return m
}

func (m *worldModel) start(i int) {
	w := &modelWriter{view: &view{medium: m.shared}, store: quick(openStore(m.t, m.dirs[i]))}
	w.store.boot = func() (string, time.Duration) { return "boot", time.Since(m.begun) }
	w.store.Share(w.view)
	w.schedule, w.ledger = newScheduleOf(m.t, w.store), newLedger(m.t, w.store)
	rules := SearchRules{Backoff: Strict, Published: true, FirstContact: func() time.Duration { return 0 }}
	w.search = w.ledger.Limit(Pace(modelServer{m, w}, w.schedule, rules, func(Event) {}), modelBudget, func(Event) {})
	m.writers[i] = w
}

func (m *worldModel) step() {
	i := m.chance.IntN(3)
	w := m.writers[i]
	switch m.chance.IntN(12) {
	case 0:
		m.crash(i)
	case 1:
		m.breakMedium(w)
	case 2: // a step of the wall clock, which the files do not know of
		must(m.t, SetClock(m.dirs[i], time.Duration(m.chance.IntN(48)-24)*time.Hour))
	case 3, 4, 5:
		time.Sleep(time.Duration(m.chance.IntN(40)) * time.Minute)
	default:
		if _, err := w.search.Search(m.t.Context(), nil); errors.Is(err, lookup.ErrBackoff) || errors.Is(err, lookup.ErrBudget) {
			m.refused++
		}
		if w.dead {
			m.crash(i)
		}
		w.schedule.Flush()
	}
	synctest.Wait() // for what is written
}

// crash ends a process, without reservations coming back.
func (m *worldModel) crash(i int) {
	m.crashes++
	m.writers[i].schedule.Flush()
	m.start(i)
}

// breakMedium does something to the medium that is not to be relied on.
func (m *worldModel) breakMedium(w *modelWriter) {
	broken := m.chance.IntN(2) == 0
	if m.folders {
		w.store.disk.SyncFile = func(*os.File) error {
			if broken {
				return errTest
			}
			return nil
		}
		return
	}
	w.view.away = nil
	switch m.chance.IntN(4) {
	case 0:
		m.old = maps.Clone(m.shared.documents)
	case 1: // an old copy, or none
		m.shared.documents = make(map[string][]byte)
		maps.Copy(m.shared.documents, m.old)
	default:
		if broken {
			w.view.away = errTest
		}
	}
}

func (m *worldModel) end() {
	for _, w := range m.writers {
		w.schedule.Flush()
		_ = w.ledger.Flush() // it may have no disk
	}
}

// modelServer is the server, as a process asks it.
type modelServer struct {
	*worldModel
	by *modelWriter
}

func (m modelServer) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	m.sent++
	m.today[dateOf(now)]++
	testkit.Between(m.t, "searches on "+dateOf(now), m.today[dateOf(now)], 1, modelBudget)
	testkit.Between(m.t, "a search is too early by", m.until.Sub(now), math.MinInt64, 0)
	noted := m.by.schedule.searchClock().Asking
	switch m.chance.IntN(5) {
	case 0:
		m.until = now.Add(Backoff(1, 0))
		return lookup.Answer{}, &StatusError{Code: 503}
	case 1:
		wait := time.Duration(m.chance.IntN(90)) * time.Minute
		m.until = now.Add(wait)
		return lookup.Answer{MinimumWait: wait}, nil
	case 2:
		if !noted {
			break
		}
		m.until = now.Add(Backoff(1, 0)) // as far as anybody knows
		m.by.dead, m.by.view.away = true, errTest
		m.by.store.dir = filepath.Join(m.t.TempDir(), "none") // what it writes from now on is lost
	}
	return lookup.Answer{}, nil
}
