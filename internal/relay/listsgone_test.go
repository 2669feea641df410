package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// Nothing is made for a client that goes away before its turn. Those that wait with it get
// their answer all the same.
func TestNothingIsMadeForClientsThatHaveGoneAway(t *testing.T) {
	l := newLists(t, "")
	for round := range 200 {
		others := round % 4
		publish(t, l, "se-4b", setOf(t, fmt.Sprintf("%04d", round)))
		gone, leave := context.WithCancel(t.Context())
		errs := make(chan error, others)
		alone := make(chan error, 1)
		ask := func(ctx context.Context, errs chan error) {
			a, err := l.Get(ctx, netip.Addr{}, "se-4b", nil, 0)
			if err == nil && len(a.Message) == 0 {
				err = errors.New("an empty answer")
			}
			errs <- err
		}
		l.turns.take(netip.Addr{}, nil, nil) // another encoder's turn
		go ask(gone, alone)
		for range others {
			go ask(t.Context(), errs)
		}
		runtime.Gosched() // any of them may be the first
		leave()
		l.turns.leave()
		for range others {
			if err := <-errs; err != nil {
				t.Errorf("round %d: a client that stays: %v", round, err)
			}
		}
		if err := <-alone; err != nil && !errors.Is(err, context.Canceled) || err == nil && others == 0 {
			t.Errorf("round %d: the client that has gone away: %v", round, err)
		}
		if got := l.kept.Len(); got != min(others, 1) {
			t.Errorf("round %d: %d answers made for %d clients", round, got, others)
		}
	}
}
