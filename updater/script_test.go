package updater_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// question is a request to a scripted source.
type question struct {
	at       time.Time
	versions map[string]string // of the lists that were wanted; "": none
}

// scripted is a source that answers requests by number, at last always as the last one, and remembers what it was asked.
type scripted struct {
	answers []func(list string) *updater.Update
	wait    time.Duration // for all lists
	errs    []error       // by number; none: never one
	then    func()        // called after each answer, unless it is nil

	mu    sync.Mutex
	asked []question
}

// Fetch implements updater.Source. The updates come in backward order.
func (s *scripted) Fetch(_ context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (time.Duration, error) {
	s.mu.Lock()
	n := len(s.asked)
	q := question{at: time.Now(), versions: make(map[string]string)}
	for _, w := range wanted {
		q.versions[w.List] = string(w.Version)
	}
	s.asked = append(s.asked, q)
	s.mu.Unlock()
	if s.then != nil {
		defer s.then()
	}
	if n < len(s.errs) && s.errs[n] != nil {
		return 0, s.errs[n]
	}
	for i, w := range slices.Backward(wanted) {
		take(i, s.answers[min(n, len(s.answers)-1)](w.List))
	}
	return s.wait, nil
}

func (s *scripted) questions() []question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// last returns the youngest of n questions, and fails the test if there are more or less.
func (s *scripted) last(t *testing.T, count int) question {
	t.Helper()
	synctest.Wait()
	asked := s.questions()
	if len(asked) != count {
		t.Fatalf("asked %v, want %d questions", asked, count)
	}
	return asked[count-1]
}

// full is a full update, to a version, of a list of these entries, which are ascending; each is a stream of its own.
func full(version string, entries ...string) func(string) *updater.Update {
	return func(string) *updater.Update {
		sum := sha256.Sum256([]byte(strings.Join(entries, "")))
		u := &updater.Update{Version: []byte(version), Checksum: sum[:]}
		for _, e := range entries {
			u.Additions = append(u.Additions, updater.Entries{Width: len(e), Count: 1, Reader: bytes.NewReader([]byte(e))})
		}
		return u
	}
}

// waiting is an update with a minimum wait for its list.
func waiting(wait time.Duration, update func(string) *updater.Update) func(string) *updater.Update {
	return func(list string) *updater.Update {
		u := update(list)
		u.MinimumWait = wait
		return u
	}
}

// unchanged says that nothing is new, but for the version.
func unchanged(version string) func(string) *updater.Update {
	return func(string) *updater.Update { return &updater.Update{Version: []byte(version), Partial: true} }
}

func prefix(b byte) string { return string(bytes.Repeat([]byte{b}, 4)) }

func TestNoListIsAskedForBeforeTheMinimumWaitForAll(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		source := &scripted{answers: []func(string) *updater.Update{full("1", prefix(1)), unchanged("2")}, wait: 2 * time.Hour}
		origin := updater.Origin{Name: "test", Schedule: "schedule-v4.json"}
		r := newRunOf(t, source, openStore(t, dir, origin), "se-4b").started()
		time.Sleep(time.Minute)
		asked := source.last(t, 1).at
		r.checkHeld("after the first answer", held{"se-4b": {1}})
		testkit.Equal(t, "due in", r.reported(updater.Fetched)[0].Due.Sub(asked), 2*time.Hour)
		time.Sleep(30 * time.Minute)
		r.stop()

		r = newRunOf(t, source, openStore(t, dir, origin), "se-4b", "mw-4b") // a new list must wait too
		r.start()
		time.Sleep(time.Until(asked.Add(2*time.Hour)) - 1)
		source.last(t, 1)
		time.Sleep(1 * time.Nanosecond)
		second := source.last(t, 2)
		testkit.Equal(t, "asked for", second.versions, map[string]string{"se-4b": "1", "mw-4b": ""})
		time.Sleep(2*time.Hour - 1) // mw-4b, with nothing of it held, was rejected
		source.last(t, 2)
		time.Sleep(1 * time.Nanosecond)
		source.last(t, 3)
		r.stop()
	})
	// Lists without a wait of their own take the common one, and no floor.
	inBubble(t, "each list has it", func(t *testing.T) {
		source := &scripted{answers: []func(string) *updater.Update{full("1", prefix(1)), unchanged("1")}, wait: 5 * time.Minute}
		r := newRunOf(t, source, nil, "se-4b").started()
		time.Sleep(time.Minute)
		first := source.last(t, 1).at
		for i := range 40 {
			time.Sleep(time.Until(first.Add(time.Duration(i+1) * 5 * time.Minute)))
			source.last(t, i+2)
		}
		r.stop()
	})
}

// An old version may be one that the server has forgotten by then.
func TestANewVersionOfAnUnchangedListSurvivesARestart(t *testing.T) {
	full1 := full("1", prefix(1))
	for name, test := range map[string]struct {
		answers []func(string) *updater.Update
		want    string
	}{
		"an empty partial update":              {[]func(string) *updater.Update{full1, unchanged("2")}, "2"},
		"the same entries in a full update":    {[]func(string) *updater.Update{full1, full("2", prefix(1))}, "2"},
		"the same version":                     {[]func(string) *updater.Update{full1, unchanged("1")}, "1"},
		"new entries, then an unchanged list":  {[]func(string) *updater.Update{full1, full("2", prefix(2)), unchanged("3")}, "3"},
		"an unchanged list, then a broken one": {[]func(string) *updater.Update{full1, unchanged("2"), partialOfNothing}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				source := &scripted{answers: test.answers, wait: time.Hour}
				r := newRunOf(t, source, openStore(t, dir, updater.Origin{Name: "test"}), "se-4b").started()
				time.Sleep(time.Minute + time.Duration(len(test.answers)-1)*time.Hour)
				source.last(t, len(test.answers))
				r.stop()
				l, err := openStore(t, dir, updater.Origin{Name: "test"}).ReadList("se-4b")
				must(t, err)
				testkit.Equal(t, "the version that is saved", string(l.Version), test.want)
			})
		})
	}
}

func partialOfNothing(string) *updater.Update {
	return &updater.Update{Version: []byte("bad"), Partial: true, Checksum: []byte("short")}
}

func TestUpdatesMayComeInAnyOrderButMustAllCome(t *testing.T) {
	for name, test := range map[string]struct {
		take []int
		good bool
	}{
		"all": {[]int{0, 1, 2}, true}, "backward": {[]int{2, 1, 0}, true}, "all but one": {[]int{0, 2}, false},
		"none": {nil, false}, "one that was not asked for": {[]int{0, 1, 2, 3}, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			source := takes(test.take)
			r := newRunOf(t, source, nil, "se-4b", "mw-4b", "uws-4b").started()
			time.Sleep(time.Minute)
			synctest.Wait()
			fetched, want := r.only(updater.Fetched), held{"se-4b": nil, "mw-4b": nil, "uws-4b": nil}
			testkit.Equal(t, "success", fetched.Err == nil, test.good)
			if test.good {
				want = held{"se-4b": {0}, "mw-4b": {1}, "uws-4b": {2}}
			} else if len(test.take) < 3 {
				testkit.Is(t, "fetched", fetched.Err, updater.ErrMalformed)
			}
			r.checkHeld("in the end", want)
			r.stop()
		})
	}
}

// takes is a source that hands over updates of these numbers, each with its number as the entry.
type takes []int

func (s takes) Fetch(_ context.Context, _ []updater.Want, take func(i int, u *updater.Update)) (time.Duration, error) {
	for _, i := range s {
		take(i, full("1", prefix(byte(i)))(""))
	}
	return time.Hour, nil
}

// single is a scripted source of a server that answers about one list a request.
type single struct{ *scripted }

func (s single) OneByOne() {}

// order returns the lists that each question since the nth was about.
func (s single) order(n int) (lists []string) {
	for _, q := range s.questions()[n:] {
		lists = slices.AppendSeq(lists, maps.Keys(q.versions))
	}
	return lists
}

func TestListsOfOneByOneThatAreAnsweredCountWhateverComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := waiting(time.Hour, full("1", prefix(1)))
		source := single{&scripted{answers: []func(string) *updater.Update{answer}, errs: []error{nil, &updater.StatusError{Code: 503}}}}
		r := newRunOf(t, source, openStore(t, t.TempDir(), updater.Origin{Name: "test"}), "se-4b", "mw-4b", "uws-4b").started()
		defer r.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "asked for", source.order(0), []string{"se-4b", "mw-4b"})
		r.checkHeld("answered before the failure", held{"se-4b": {1}})
		r.checkHeld("failed", held{"mw-4b": nil})
		fetched := mapped(r.reported(updater.Fetched), func(e updater.Event) string { return fmt.Sprint(e.List, " fails: ", e.Err != nil) })
		testkit.Equal(t, "fetched", fetched, []string{"se-4b fails: false", "mw-4b fails: true"})
		time.Sleep(13 * time.Minute)
		synctest.Wait()
		testkit.Equal(t, "asked for in the back-off", source.order(2), nil)
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		// The one that failed waits behind the one that has not been asked for.
		testkit.Equal(t, "asked for after the back-off", source.order(2), []string{"uws-4b", "mw-4b"})
	})
}
