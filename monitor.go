package safebrowsing

import (
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// monitorLog logs what would have been blocked, some ten lines a second at most.
// The zero value is ready to use; it is safe for concurrent use.
type monitorLog struct {
	mu    sync.Mutex
	level lookup.Level
	left  int // lines left out since the last one
}

func (l *monitorLog) log(qname string, d lookup.Decision, now time.Time) {
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
	if left > 0 {
		log.Infof("Monitor: %d more names would have been blocked", left)
	}
	log.Infof("Monitor: %s would be blocked: %s, expression %s, list %s, decided by %s", qname, what(d), d.Expression, d.List, d.By)
}
