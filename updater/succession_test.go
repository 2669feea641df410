package updater_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Two versions of a server. The newer continues with the older's lists; the older uses the newer's until it has fetched its own.
var (
	older = updater.Origin{Name: "server v4", Predecessors: []updater.Predecessor{{Name: "server"}}, Schedule: "schedule-v4.json"}
	newer = updater.Origin{Name: "server", Predecessors: []updater.Predecessor{{Name: "server v4", Continues: true}}}
)

func openStore(t *testing.T, dir string, origin updater.Origin) *updater.Store {
	t.Helper()
	store, err := updater.OpenStore(dir, origin)
	must(t, err)
	return store
}

// save saves a list of these entries, which are ascending.
func save(t *testing.T, dir string, origin updater.Origin, name, version string, entries ...string) {
	t.Helper()
	b := prefixset.NewBuilder(0)
	for _, e := range entries {
		must(t, b.Add([]byte(e), len(e)))
	}
	l := updater.List{Name: name, Version: []byte(version), Checksum: sha256.Sum256([]byte(strings.Join(entries, ""))), Set: b.Set()}
	must(t, openStore(t, dir, origin).SaveList(l))
}

func TestListsOfThePredecessorAreTakenOver(t *testing.T) {
	wide := strings.Repeat("w", 8)
	tests := []struct {
		name, list string
		from, by   updater.Origin
		entries    []string
		takenOver  bool
		version    string
		want       error
	}{
		{"its own list", "se-4b", newer, newer, []string{prefix(1)}, false, "a state", nil},
		{"its own list of several widths", "se-4b", newer, newer, []string{prefix(1), wide}, false, "a state", nil},
		{"the predecessor's list", "se-4b", older, newer, []string{prefix(1), prefix(2)}, true, "a state", nil},
		{"the predecessor's empty list", "se-4b", older, newer, nil, true, "a state", nil},
		{"the predecessor's list of eight bytes", "se-8b", older, newer, []string{wide}, true, "a state", nil},
		{"the predecessor's list of several widths", "se-4b", older, newer, []string{prefix(1), wide}, true, "", nil},
		{"the predecessor's list of another width", "se-4b", older, newer, []string{wide}, true, "", nil},
		{"the successor's list", "se-4b", newer, older, []string{prefix(1)}, true, "", nil},
		{"the older one's own list of several widths", "se-4b", older, older, []string{prefix(1), wide}, false, "a state", nil},
		{"a stranger's list", "se-4b", updater.Origin{Name: "other v4"}, newer, []string{prefix(1)}, false, "", fs.ErrNotExist},
		{"a list of no origin, without predecessor", "se-4b", updater.Origin{}, updater.Origin{Name: "server"}, []string{prefix(1)}, false, "", fs.ErrNotExist},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			save(t, dir, test.from, test.list, "a state", test.entries...)
			store := openStore(t, dir, test.by)
			for range 2 { // it stays as it is
				l, err := store.LoadList(test.list)
				testkit.Is(t, "the error", err, test.want)
				if err != nil {
					testkit.Is(t, "for its own server", errOf(openStore(t, dir, test.from).LoadList(test.list)), nil)
					continue
				}
				testkit.Equal(t, "taken over, its version, entries", []any{l.TakenOver, string(l.Version), l.Set.Len()},
					[]any{test.takenOver, test.version, len(test.entries)})
			}
		})
	}
}

// Each version of the server has a schedule of its own in the folder.
func TestThePredecessorsClocksAreStartsAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a-b]") // no pattern
	synctest.Test(t, func(t *testing.T) {
		first := &scripted{answers: []func(string) *updater.Update{full("a state", prefix(1))}, wait: 12 * time.Hour}
		r := newRunOf(t, first, openStore(t, dir, older), "se-4b").started()
		time.Sleep(time.Minute)
		first.last(t, 1)
		r.stop()
		second := &scripted{answers: []func(string) *updater.Update{unchanged("1")}, wait: time.Hour}
		r = newRunOf(t, second, openStore(t, dir, newer), "se-4b").started()
		time.Sleep(time.Minute)
		testkit.Equal(t, "asked for", second.last(t, 1).versions, map[string]string{"se-4b": "a state"})
		r.stop()
		all, err := updater.Status(dir) // by the schedule that was saved last
		must(t, err)
		late := mapped(all, func(s updater.ListStatus) time.Duration { return s.Updated.Sub(second.last(t, 1).at) })
		testkit.Equal(t, "updated late by", late, []time.Duration{0})
		testkit.Equal(t, "failures", mapped(all, func(s updater.ListStatus) int { return s.Failures }), []int{0})
		names := updater.NamesIn(t, dir)
		testkit.Equal(t, "each has a schedule", slices.Contains(names, older.Schedule) && slices.Contains(names, "schedule.json"), true)
		r = newRunOf(t, first, openStore(t, dir, older), "se-4b") // back again
		r.start()
		time.Sleep(11 * time.Hour)
		first.last(t, 1)
		r.stop()
	})
}

// refusal is what servers answer to a version that they do not know.
func refusal(code int) error { return &updater.StatusError{Code: code, RetryAfter: time.Hour} }

func TestAServerThatRefusesAStateIsAskedForTheWholeList(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		se      string // its version that is sent after it; it was taken over
		sent    int    // requests that both versions are sent in
		restart bool
	}{
		{"status 400", refusal(http.StatusBadRequest), "", 2, false},
		{"status 400, and a restart", refusal(http.StatusBadRequest), "", 2, true},
		{"status 403", refusal(http.StatusForbidden), "a state", 1, false},
		{"status 503", refusal(http.StatusServiceUnavailable), "a state", 1, false},
		{"no connection", errors.New("connection refused"), "a state", 1, false},
	}
	for _, test := range tests {
		dir := t.TempDir()
		inBubble(t, test.name, func(t *testing.T) {
			save(t, dir, older, "se-4b", "a state", prefix(1))
			save(t, dir, newer, "mw-4b", "own", prefix(2))
			source := &scripted{answers: []func(string) *updater.Update{waiting(12*time.Hour, full("1", prefix(3)))}, errs: []error{test.err}}
			r := newRunOf(t, source, openStore(t, dir, newer), "se-4b", "mw-4b").started()
			time.Sleep(time.Minute)
			testkit.Equal(t, "asked for", source.last(t, 1).versions, map[string]string{"se-4b": "a state", "mw-4b": "own"})
			r.checkHeld("after the refusal", held{"se-4b": {1}}) // it stays in force
			if test.restart {
				r.stop()
				r = newRunOf(t, source, openStore(t, dir, newer), "se-4b", "mw-4b").started()
				r.checkHeld("after the restart", held{"se-4b": {1}})
			}
			time.Sleep(90 * time.Minute)
			source.last(t, 1+test.sent)
			got := make(map[string]string)
			for _, q := range source.questions()[1:] {
				maps.Copy(got, q.versions)
			}
			testkit.Equal(t, "then asked for", got, map[string]string{"se-4b": test.se, "mw-4b": "own"})
			r.checkHeld("after the update", held{"se-4b": {3}})
			time.Sleep(12 * time.Hour)
			testkit.Equal(t, "at last asked for", source.last(t, 2+test.sent).versions, map[string]string{"se-4b": "1", "mw-4b": "1"})
			r.stop()
		})
	}
}

// A predecessor that has nothing to give is no hindrance.
func TestAScheduleInMemorySucceedsThePredecessors(t *testing.T) {
	for name, asked := range map[string]bool{"that never asked": false, "whose list was rejected": true} {
		inBubble(t, name, func(t *testing.T) {
			old := newRunOf(t, &scripted{answers: []func(string) *updater.Update{unchanged("1")}}, nil, "se-4b")
			if asked {
				old.start()
				time.Sleep(time.Minute)
				synctest.Wait()
				old.stop()
			}
			testkit.Equal(t, "a list was rejected", old.times(updater.ListRejected) == 1, asked)
			source := &scripted{answers: []func(string) *updater.Update{full("1", prefix(5))}, wait: time.Hour}
			r := newRunOf(t, source, nil, "se-4b")
			r.schedule.Succeed(old.schedule, nil, true)
			testkit.Equal(t, "a list was there from the start", r.start() || r.times(updater.Loaded) != 0, false)
			time.Sleep(time.Minute)
			source.last(t, 1)
			r.checkHeld("in the end", held{"se-4b": {5}})
			r.stop()
		})
	}
	inBubble(t, "with lists", func(t *testing.T) {
		states := map[string]func(string) *updater.Update{
			"se-4b": full("a state", prefix(1)), "mw-4b": full("mixed", prefix(2), "mixed in"),
		}
		first := &scripted{answers: []func(string) *updater.Update{func(l string) *updater.Update { return states[l](l) }}, wait: 12 * time.Hour}
		old := newRunOf(t, first, nil, "se-4b", "mw-4b").started()
		time.Sleep(time.Minute)
		first.last(t, 1)

		second := &scripted{answers: []func(string) *updater.Update{waiting(time.Hour, full("1", prefix(5)))}, errs: []error{refusal(http.StatusBadRequest)}}
		r := newRunOf(t, second, nil, "se-4b", "mw-4b")
		r.schedule.Succeed(old.schedule, nil, true)
		testkit.Equal(t, "all lists are taken over", r.start(), true)
		r.checkHeld("at once", held{"se-4b": {1}})
		lists := mapped(r.database.Lists(), func(l lookup.List) string { return fmt.Sprintf("%d, version %q", l.Set.Len(), l.Version) })
		testkit.Equal(t, "entries and state of the lists", lists, []string{`1, version "a state"`, `2, version ""`})
		testkit.Equal(t, "starts anew", r.only(updater.StartsAnew).List, "mw-4b")
		time.Sleep(5 * time.Minute)
		testkit.Equal(t, "asked before its turn", second.questions(), nil)
		old.stop()
		time.Sleep(time.Minute) // the first contact, and no wait of the predecessor's
		testkit.Equal(t, "asked for", second.last(t, 1).versions, map[string]string{"se-4b": "a state", "mw-4b": ""})
		time.Sleep(time.Hour)
		second.last(t, 3) // each list by itself
		testkit.Equal(t, "after a refusal asked for", second.questions()[1].versions, map[string]string{"se-4b": ""})
		r.checkHeld("in the end", held{"se-4b": {5}, "mw-4b": {5}})
		r.stop()
		first.last(t, 1)
	})
}

func TestADamagedScheduleOfSeveralIsTold(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, older, "se-4b", "a state", prefix(1))
	for _, damaged := range []string{"schedule.json", older.Schedule} {
		file := filepath.Join(dir, damaged)
		must(t, os.WriteFile(file, []byte("{"), 0o600))
		all, err := updater.Status(dir)
		testkit.Is(t, damaged, err, updater.ErrDamaged)
		testkit.WantError(t, err, file)
		testkit.Equal(t, damaged+": lists", len(all), 1)
		must(t, os.Remove(file))
	}
}
