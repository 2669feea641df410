package sharing

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A claim in Redis tells that a relay asks the server about a prefix. The script look makes
// it, and the script store ends it.

const (
	// claimLife is how long a claim tells that a relay asks the server: longer than
	// others wait for it.
	claimLife = 2 * time.Second
	// A relay waits for the search of another one for at most so long, see
	// Answers.patience. The least is above what a busy machine adds; the most is below
	// the time that a name server waits for a confirmation.
	minPatience = 250 * time.Millisecond
	maxPatience = 500 * time.Millisecond
)

// learn notes how long a search took.
func (a *Answers) learn(took time.Duration) {
	old := a.typical.Load()
	a.typical.Store(old + (int64(took)-old)/8) // a lost update does not matter
}

// patience returns how long a search of another relay may take until this one asks by
// itself: twice the time that searches take. It is waited in vain only if a relay dies
// during a search, or if the server is late.
func (a *Answers) patience() time.Duration {
	least := cmp.Or(a.LeastPatience, minPatience)
	return min(max(time.Duration(a.typical.Load())*2, least), max(least, maxPatience))
}

// errLate says that another relay has not answered in time.
var errLate = errors.New("another relay has not answered in time")

// await waits for what other relays ask the server about. Their searches began before one
// of its own would, so that waiting for them costs no time. The patience counts from when
// they began. In mine is what is left to ask about.
func (a *Answers) await(ctx context.Context, claimed map[lookup.Prefix]time.Duration) looked {
	patience := a.patience()
	result := looked{known: make(map[lookup.Prefix]lookup.EarlierAnswer)}
	var oldest time.Duration
	var waiting []lookup.Prefix
	for p, since := range claimed {
		waiting = append(waiting, p)
		oldest = max(oldest, since)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(0, patience-oldest), errLate)
	defer cancel()
	tick := time.NewTicker(min(max(patience/100, 2*time.Millisecond), 5*time.Millisecond))
	defer tick.Stop()
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			result.mine = append(result.mine, waiting...)
			return result
		case <-tick.C:
		}
		l := a.look(waiting)
		l.tell(ctx)
		maps.Copy(result.known, l.known)
		result.mine = append(result.mine, l.mine...)
		if l.clock != (redisClock{}) {
			result.clock = l.clock
		}
		waiting = waiting[:0]
		for p := range l.claimed {
			waiting = append(waiting, p)
		}
	}
	return result
}
