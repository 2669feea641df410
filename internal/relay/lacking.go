package relay

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// lacking logs what clients want and this relay does not give them: each thing once a day. The
// zero value is ready to use; it is safe for concurrent use.
type lacking struct {
	said say.Daily // lists, and "" for searches

	mu               sync.Mutex
	day              string
	listed, unlisted int // prefixes that clients have searched for on the day: in a list, in none
}

const (
	// Clients whose lists are older than the relay's search for a few prefixes that are in no
	// list any more. Clients without lists hardly search for others.
	manyUnlisted  = 100
	unlistedTimes = 4 // as many as listed ones
)

// noteList notes that a client asks for a list that the relay does not have.
func (l *lacking) noteList(name string, client netip.Addr, has []string, now time.Time) {
	if !l.said.First(name, now) {
		return
	}
	advice := "Name it with -lists here, or remove it there"
	if name == protocol.GlobalCache {
		advice = "The client's mode realtime acts as mode local: start the relay with -realtime, or write mode local there"
	}
	log.Warningf("Client %s asks for list %q, and this relay has %s only. %s. This is logged once a day", client, shorten(name), strings.Join(has, ", "), advice)
}

// noteSearch notes where the answers to a client's search came from.
func (l *lacking) noteSearch(answers []lookup.PrefixAnswer, client netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew(now)
	for _, a := range answers {
		switch {
		case a.Err != nil: // not answered
		case a.From == lookup.FromLists:
			l.unlisted++
		default:
			l.listed++
		}
	}
	if l.unlisted < manyUnlisted || l.unlisted < unlistedTimes*l.listed || !l.said.First("", now) {
		return
	}
	log.Warningf("%d of today's %d prefixes that clients asked about are in no list, the last ones of %s. Clients in mode nostorage or realtime ask so, and without -realtime this relay confirms only what its own lists hold: "+
		"start it with -realtime, or write mode local there. This is logged once a day", l.unlisted, l.unlisted+l.listed, client)
}

// renew begins a new day. The caller holds mu.
func (l *lacking) renew(now time.Time) {
	if day := now.Format(time.DateOnly); l.day != day {
		l.day, l.listed, l.unlisted = day, 0, 0
	}
}
