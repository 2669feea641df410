package updater_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// single is a scripted source of a server that answers about one list a request, and
// always fails for one of them.
type single struct {
	*scripted
	broken string // "": none
}

func (s single) OneByOne() {}

func (s single) Fetch(ctx context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (time.Duration, error) {
	wait, err := s.scripted.Fetch(ctx, wanted, take)
	if wanted[0].List == s.broken {
		err = errors.New("broken")
	}
	return wait, err
}

// order returns the lists that each question since the nth was about.
func (s single) order(n int) (lists []string) {
	for _, q := range s.questions()[n:] {
		text := ""
		for list := range q.versions {
			text += list
		}
		lists = append(lists, text)
	}
	return lists
}

func TestListsOfOneByOneThatAreAnsweredCountWhateverComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := waiting(time.Hour, full("1", prefix(1)))
		source := single{scripted: &scripted{answers: []func(string) *updater.Update{answer}, errs: []error{nil, &updater.StatusError{Code: 503}}}}
		r := newRunOf(t, source, t.TempDir(), updater.Origin{Name: "test"}, "se-4b", "mw-4b", "uws-4b")
		r.start()
		defer r.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := source.order(0), []string{"se-4b", "mw-4b"}; !slices.Equal(got, want) {
			t.Fatalf("asked for %q, want %q", got, want)
		}
		r.checkHeld("answered before the failure", "se-4b", 1)
		r.checkHeld("failed", "mw-4b")
		if got := r.reported(updater.Fetched); len(got) != 2 || got[0].Err != nil || got[1].Err == nil || got[0].List != "se-4b" || got[1].List != "mw-4b" {
			t.Errorf("reported %+v, want one request that was answered and one that failed", got)
		}
		time.Sleep(13 * time.Minute)
		synctest.Wait()
		if got := source.order(2); len(got) != 0 {
			t.Errorf("asked for %q in the back-off", got)
		}
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		// The one that failed waits behind the one that has not been asked for.
		if got, want := source.order(2), []string{"uws-4b", "mw-4b"}; !slices.Equal(got, want) {
			t.Errorf("asked for %q after the back-off, want %q", got, want)
		}
	})
}

func TestAListOfOneByOneThatAlwaysFailsDoesNotStarveTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := waiting(30*time.Minute, full("1", prefix(1)))
		source := single{scripted: &scripted{answers: []func(string) *updater.Update{answer}}, broken: "se-4b"}
		r := newRunOf(t, source, "", updater.Origin{}, "se-4b", "mw-4b", "uws-4b")
		r.start()
		defer r.stop()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		r.checkHeld("beside a list that fails", "mw-4b", 1)
		r.checkHeld("beside a list that fails", "uws-4b", 1)
		r.checkHeld("which fails", "se-4b")
	})
}
