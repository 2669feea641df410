package safebrowsing

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// nameLog logs names that are blocked, or would be in monitor mode: ten lines a
// second after a burst of twenty. It also logs how many names it left out. The zero value is
// ready to use; it is safe for concurrent use.
type nameLog struct {
	mu    sync.Mutex
	level lookup.Level
	left  int // names left out since the last line
}

// log logs that the query of a client is blocked, or in monitor mode would be.
func (l *nameLog) log(monitor bool, client string, q dns.Question, d lookup.Decision, cause string, now time.Time) {
	l.mu.Lock()
	level, admitted := lookup.LeakyBucket{Rate: 10, Capacity: 20}.Admit(l.level, now)
	l.level = level
	left := l.left
	if l.left++; admitted {
		l.left = 0
	}
	l.mu.Unlock()
	if !admitted {
		return
	}
	logLeft(monitor, left)
	format := "Blocked %s %s for %s: %s, expression %s, list %s, decided by %s"
	if monitor {
		format = "Monitor: %s %s for %s would be blocked: %s, expression %s, list %s, decided by %s"
	}
	log.Infof(format, q.Name, dns.Type(q.Qtype), client, cause, d.Expression, d.List, d.By)
}

// end logs how many names were left out since the last line.
func (l *nameLog) end(monitor bool) {
	l.mu.Lock()
	left := l.left
	l.left = 0
	l.mu.Unlock()
	logLeft(monitor, left)
}

func logLeft(monitor bool, left int) {
	names := "names"
	if left == 1 {
		names = "name"
	}
	switch {
	case left == 0:
	case monitor:
		log.Infof("Monitor: %d more %s would have been blocked; the log takes ten lines a second", left, names)
	default:
		log.Infof("Blocked %d more %s; the log takes ten lines a second", left, names)
	}
}

// shareLog logs that a client has spent its share of the budget: the first one of each
// day. The zero shareLog is ready to use. It is safe for concurrent use.
type shareLog struct{ day atomic.Value }

func (l *shareLog) log(client netip.Addr, now time.Time) {
	day := now.Format(time.DateOnly)
	if last := l.day.Swap(day); last != day {
		log.Warningf("Client %s has spent its share of the day's budget of searches: its suspected names pass until midnight. The log names the first such client of a day only", client)
	}
}
