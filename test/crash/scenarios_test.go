//go:build linux && amd64

package crash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A scenario is what a program does with its folders before it dies, and what must hold after that.
type scenario struct {
	name    string
	prepare func(t *testing.T, p place)
	act     func(p place) error    // in a process of its own
	command func(p place) []string // arguments of the program safebrowsing; nil: act
	// check looks at the folders as the next start finds them. lost says that the power failed: what was not synced may be gone.
	check func(t *testing.T, p place, said []note, lost bool)
	slow  bool // a point takes seconds: only with -crash.all
}

var scenarios = []scenario{
	{"first update", nothing, update, nil, checkUpdate, false},
	{"partial update", oldLists, update, nil, checkUpdate, false},
	{"update after a damaged list", damagedList, update, nil, checkUpdate, false},
	{"failed update", oldLists, failedUpdate, nil, checkUpdate, false},
	{"clock of searches", nothing, search, nil, checkSearch, false},
	{"budget", nothing, spend, nil, checkBudget, false},
	{"move of a budget", nothing, moveBudget, nil, checkBudget, false},
	{"history of a relay", oldHistory, publishHistory, nil, checkHistory, false},
	{"first fetch of a list by URL", nothing, fetchList, nil, checkOwnList, false},
	{"next fetch of a list by URL", oldOwnList, fetchList, nil, checkOwnList, false},
	{"an exception is added", ownFile, nil, allow("new.example"), checkFile(withNew), false},
	{"an exception is removed", ownFile, nil, allow("-remove", "old.example"), checkFile(withoutOld), false},
	{"a pause", nothing, setPause, nil, checkPaused, false},
	{"a relay that follows loses Redis", heldLast(false), loseRedis, nil, checkLease(false), true},
	{"a relay that leads loses Redis", heldLast(true), loseRedis, nil, checkLease(true), true},
}

// place is where a scenario happens. Each folder exists before it begins.
type place struct{ root string }

func (p place) db() string      { return filepath.Join(p.root, "db") }
func (p place) other() string   { return filepath.Join(p.root, "other") }
func (p place) history() string { return filepath.Join(p.root, "relay", "history") }
func (p place) spare() string   { return filepath.Join(p.root, "spare") }
func (p place) notes() string   { return filepath.Join(p.root, "notes") }

// folders returns the folders that a tracer watches.
func (p place) folders() []string {
	spare := filepath.Join(p.spare(), fmt.Sprintf("coredns-safebrowsing-%d", os.Getuid()))
	return []string{p.db(), p.other(), p.history(), spare, p.ownFiles(), p.etc(), p.lease()}
}

// newPlace returns a new place in which a scenario has been prepared, and whose spare folder is the first one of this process.
// A write that a schedule has given up waiting for may still go on when the test ends.
func (s scenario) newPlace(t *testing.T) place {
	t.Helper()
	testkit.SameDay(t)
	dir, err := os.MkdirTemp("", "crash")
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Until(t, "the last write into "+dir, func() bool { return os.RemoveAll(dir) == nil }) })
	p := place{dir}
	for _, folder := range p.folders() {
		testkit.Must(t, os.MkdirAll(folder, 0o700))
	}
	os.Setenv("RUNTIME_DIRECTORY", p.spare())
	s.prepare(t, p)
	return p
}

// note is what a program has said before it died: what it had done, and when.
type note struct {
	what string
	at   time.Time
}

// say appends a note to the file of notes, which no crash takes away.
func (p place) say(what string) error {
	f, err := os.OpenFile(p.notes(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %s\n", time.Now().UnixNano(), what)
	return errors.Join(err, f.Close())
}

func (n note) String() string { return n.what + " at " + n.at.Format(time.TimeOnly) }

func parseNotes(t *testing.T, raw []byte) (said []note) {
	t.Helper()
	for line := range strings.Lines(string(raw)) {
		at, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		nanoseconds, err := strconv.ParseInt(at, 10, 64)
		testkit.Must(t, err)
		said = append(said, note{what, time.Unix(0, nanoseconds)})
	}
	return said
}

// count returns how often something was said.
func count(said []note, what string) int {
	return len(slices.DeleteFunc(slices.Clone(said), func(s note) bool { return s.what != what }))
}

// The lists of all scenarios. The large one takes several writes, and several pages of 4 KiB.
const (
	large = "se-4b"
	small = "mw-4b"
	wait  = 30 * time.Minute // of an answer
)

var origin = updater.Origin{Name: "https://safebrowsing.example"}

// entries are what a content holds, old or new: the new one has lost the first ten, and has others at the end.
func entries(list, version string) (raw []byte) {
	first, n := uint32(0), uint32(20)
	if list == large {
		n = 50_000
	}
	if version == "new" {
		first = 10
	}
	for i := first; i < first+n; i++ {
		raw = binary.BigEndian.AppendUint32(raw, i*80_000)
	}
	return raw
}

func setOf(list, version string) *prefixset.Set {
	b := prefixset.NewBuilder(0)
	if err := b.Add(entries(list, version), 4); err != nil {
		panic(err)
	}
	return b.Set()
}

func nothing(*testing.T, place) {}

// oldLists saves the old content of each list, without a schedule: an update is due.
func oldLists(t *testing.T, p place) {
	store, err := updater.OpenStore(p.db(), origin)
	testkit.Must(t, err)
	for _, list := range []string{large, small} {
		testkit.Must(t, store.SaveList(updater.List{Name: list, Version: []byte("old"), Checksum: sha256.Sum256(entries(list, "old")), Set: setOf(list, "old")}))
	}
}

// damagedList is oldLists with a bit of the large list flipped.
func damagedList(t *testing.T, p place) {
	oldLists(t, p)
	path := filepath.Join(p.db(), large+".list")
	raw, err := os.ReadFile(path)
	testkit.Must(t, err)
	raw[len(raw)/2] ^= 1
	testkit.Must(t, os.WriteFile(path, raw, 0o600))
}

// source answers like a server that knows both contents.
type source struct {
	asked func() error
	err   error
}

// Fetch implements updater.Source.
func (s source) Fetch(_ context.Context, wanted []updater.Want, take func(int, *updater.Update)) (time.Duration, error) {
	if err := errors.Join(s.asked(), s.err); err != nil {
		return 0, err
	}
	for i, w := range wanted {
		raw := entries(w.List, "new")
		u := &updater.Update{Version: []byte("new"), MinimumWait: wait}
		switch sum := sha256.Sum256(raw); string(w.Version) {
		case "new":
			u.Partial = true
		case "old":
			u.Partial, u.Checksum = true, sum[:]
			var removed []byte
			for n := range uint32(10) {
				removed = binary.BigEndian.AppendUint32(removed, n)
			}
			u.Removals = updater.Entries{Width: 4, Count: 10, Reader: bytes.NewReader(removed)}
			u.Additions = []updater.Entries{{Width: 4, Count: 10, Reader: bytes.NewReader(raw[len(raw)-40:])}}
		default:
			u.Checksum = sum[:]
			u.Additions = []updater.Entries{{Width: 4, Count: len(raw) / 4, Reader: bytes.NewReader(raw)}}
		}
		take(i, u)
	}
	return 0, nil
}

// once runs one update as a command would.
func once(p place, s updater.Source, report func(updater.Event)) error {
	store, err := updater.OpenStore(p.db(), origin)
	if err != nil {
		return err
	}
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		report(updater.Event{Kind: updater.LoadFailed, Err: err}) // it waits, see NewSchedule
	}
	u, err := updater.New(updater.Config{
		Source: s, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: []string{large, small},
		Report: report, FirstContact: func() time.Duration { return 0 },
	})
	if err != nil {
		return err
	}
	return u.Once(context.Background())
}

func update(p place) error {
	return noted(p, once(p, source{asked: func() error { return p.say("asked") }}, p.report))
}

// noted notes the end of what had no error.
func noted(p place, err error) error {
	if err == nil {
		err = p.say("done")
	}
	return err
}

// failedUpdate is an update that the server refuses.
func failedUpdate(p place) error {
	return once(p, source{func() error { return p.say("asked") }, outOfService}, p.report)
}

// report notes events of the disk.
func (p place) report(e updater.Event) {
	if e.Kind == updater.StoreFailed {
		p.say("store failed")
	}
}

var outOfService = &updater.StatusError{Code: http.StatusServiceUnavailable}

// searcher fails as a server that is out of service.
type searcher struct {
	asked func() error
	err   error
}

// Search implements lookup.Searcher.
func (s searcher) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, errors.Join(s.asked(), s.err)
}

// paced returns a searcher that keeps the rules of version 4.
func paced(p place, s lookup.Searcher, report func(updater.Event)) (lookup.Searcher, *updater.Schedule, error) {
	store, err := updater.OpenStore(p.db(), origin)
	if err != nil {
		return nil, nil, err
	}
	schedule, err := updater.NewSchedule(store)
	rules := updater.SearchRules{Backoff: updater.Strict, Published: true, FirstContact: func() time.Duration { return 0 }}
	return updater.Pace(s, schedule, rules, report), schedule, err
}

func search(p place) error {
	s, schedule, err := paced(p, searcher{func() error { return p.say("asked") }, outOfService}, p.report)
	if err != nil {
		return err
	}
	if _, err := s.Search(context.Background(), nil); !errors.Is(err, outOfService) {
		return err
	}
	schedule.Flush()
	return nil
}

// spendWith makes a search within the budget.
func spendWith(ledger *updater.Ledger, asked func() error, report func(updater.Event)) error {
	_, err := ledger.Limit(searcher{asked, nil}, 100, report).Search(context.Background(), []lookup.Prefix{"evil"})
	return err
}

func spendOne(ledger *updater.Ledger) error {
	return spendWith(ledger, func() error { return nil }, func(updater.Event) {})
}

// spendSome spends three searches of a budget.
func spendSome(p place, ledger *updater.Ledger) error {
	for range 3 {
		if err := spendWith(ledger, func() error { return p.say("spent") }, p.report); err != nil {
			return err
		}
	}
	return ledger.Flush()
}

func spend(p place) error {
	ledger, err := ledgerIn(p.db())
	if err != nil {
		return err
	}
	return spendSome(p, ledger)
}

func ledgerIn(folder string) (*updater.Ledger, error) {
	store, err := updater.OpenStore(folder, origin)
	if err != nil {
		return nil, err
	}
	return updater.NewLedger(store)
}

// moveBudget spends searches, moves the budget to another folder, and spends again.
func moveBudget(p place) error {
	ledger, err := ledgerIn(p.db())
	if err != nil {
		return err
	}
	if err := spendSome(p, ledger); err != nil {
		return err
	}
	other, err := updater.OpenStore(p.other(), origin)
	if err = errors.Join(err, ledger.Move(other)); err != nil {
		return err
	}
	return spendSome(p, ledger)
}

// publish makes a relay serve a content of the large list.
func publish(lists *relay.Lists, version string) error {
	return lists.Publish([]lookup.List{{Name: large, Version: []byte(version), Set: setOf(large, version)}})
}

func oldHistory(t *testing.T, p place) {
	lists, err := relay.NewLists(filepath.Dir(p.history()))
	testkit.Must(t, err)
	testkit.Must(t, publish(lists, "old"))
}

func publishHistory(p place) error {
	lists, err := relay.NewLists(filepath.Dir(p.history()))
	if err != nil {
		return err
	}
	return errors.Join(publish(lists, "old"), publish(lists, "new"))
}

// The note of a relay about the lease in Redis.

func (p place) lease() string { return filepath.Join(p.root, "lease") }

// heldLast puts a note there. Without Redis only the relay fetches that had the lease last.
func heldLast(held bool) func(t *testing.T, p place) {
	return func(t *testing.T, p place) {
		testkit.Write(t, p.lease(), "redis-lease.json", fmt.Sprintf(`{"held_last":%t,"seen":true,"asker":"asker"}`+"\n", held))
	}
}

// withoutRedis opens the store of a relay whose Redis is away.
func withoutRedis(p place, alone time.Duration, report func(sharing.Event)) (s *sharing.Store, end func()) {
	target, err := sharing.Parse("redis://127.0.0.1:1") // nothing listens there
	client, openErr := sharing.Open(sharing.Config{Target: target})
	if err = errors.Join(err, openErr); err != nil {
		panic(err)
	}
	s = sharing.OpenStore(sharing.StoreConfig{
		Client: client, Origin: updater.Origin{Name: origin.Name, Asker: "asker"}, Folder: p.lease(),
		Report: report, Beat: 5 * time.Millisecond, Alone: alone,
	})
	return s, func() { s.Close(); client.Close() }
}

// loseRedis makes a relay note that Redis is away.
func loseRedis(p place) error {
	lost := make(chan sharing.Event, 100)
	_, end := withoutRedis(p, time.Hour, func(e sharing.Event) { lost <- e })
	defer end()
	<-lost // the note is written before
	return nil
}

// checkLease says whether the relay fetches without Redis after its start.
func checkLease(fetches bool) func(*testing.T, place, []note, bool) {
	return func(t *testing.T, p place, _ []note, _ bool) {
		t.Helper()
		alone := make(chan struct{}, 100)
		s, end := withoutRedis(p, time.Millisecond, func(e sharing.Event) {
			if e.Kind == sharing.Alone {
				alone <- struct{}{}
			}
		})
		defer wantTidy(t, p.lease()) // when it has ended: it writes the note at each of its beats here
		defer end()
		s.TryLock()
		patience := 100 * time.Millisecond // some beats
		if fetches {
			patience = 10 * time.Second
		}
		got := false
		select {
		case <-alone:
			got = true
		case <-time.After(patience):
		}
		testkit.Equal(t, "it had the lease last, and fetches without Redis", got, fetches)
	}
}
