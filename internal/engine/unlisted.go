package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// unlistedRetry is the wait after a failure: the time of a back-off that Google's server would
// ask for at most after a first one ("Request Frequency").
const unlistedRetry = 30 * time.Minute

// asksForUnlisted reports whether the engine has no lists and a server that may confirm only what
// its own lists hold, as a relay without -realtime does.
func (e *Engine) asksForUnlisted() bool {
	return e.settings.Mode == lookup.NoStorage && e.settings.OfOperator()
}

// lookForRealtime asks the server once for the names of its lists, and logs a WARNING if it has
// not the one that mode realtime needs. A server without it answers searches as if nothing was
// a threat that is in none of its lists. It ends with its first answer, or with ctx.
func (e *Engine) lookForRealtime(ctx context.Context, firstContact func() time.Duration) {
	if firstContact == nil {
		firstContact = func() time.Duration { return rand.N(time.Minute) }
	}
	for wait := firstContact(); ; wait = unlistedRetry {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		lists, err := e.client.Lists(ctx)
		if err != nil {
			log.Debugf("Cannot ask %s for the names of its lists: %v", e.settings.Address(), err)
			continue
		}
		if !slices.ContainsFunc(lists, func(l protocol.ListInfo) bool { return l.Name == protocol.GlobalCache }) {
			log.Warningf("%s does not have list %s, as a relay without -realtime: it confirms only what its own lists hold, and so mode %s blocks no more than mode %s. Start the relay with -realtime, or write mode %[4]s",
				e.settings.Address(), protocol.GlobalCache, lookup.NoStorage, lookup.Local)
		}
		return
	}
}
