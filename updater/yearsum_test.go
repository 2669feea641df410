package updater_test

import (
	"runtime/debug"
	"sync"
	"testing"
)

// yearSum counts what happened in the years of a test. It is safe for concurrent use.
type yearSum struct {
	mu                                                            sync.Mutex
	years, starts, takeovers, losses, versions, updates, searches int
}

// sumOfYears returns the sum that is logged when all years of the test are over. Until then
// garbage is collected less often: a year makes much of it, and needs little memory.
func sumOfYears(t *testing.T) *yearSum {
	s := new(yearSum)
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		t.Logf("%d years of %d months: %d starts, %d takeovers, %d losses of the network, %d versions of lists, %d requests for updates, %d searches",
			s.years, *yearMonths, s.starts, s.takeovers, s.losses, s.versions, s.updates, s.searches)
	})
	return s
}

// live lives through a year, and counts it unless the test ends there.
func (s *yearSum) live(y *year) {
	y.live()
	updates, searches := len(y.server.Requests("update")), y.searches()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.years++
	s.starts += y.starts
	s.takeovers += y.takeovers
	s.losses += y.losses
	s.versions += y.published
	s.updates += updates
	s.searches += searches
}
