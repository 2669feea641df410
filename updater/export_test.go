package updater

import (
	"context"
	"time"
)

// Doors for tests of package updater_test.

// SetSleep replaces the sleep of Run, and the longest time that it sleeps at
// once.
func (u *Updater) SetSleep(sleep func(ctx context.Context, d time.Duration) error, slice time.Duration) {
	u.sleep, u.slice = sleep, slice
}

// Sleep is the real one.
var Sleep = sleep

// SetRandom replaces the random numbers of the back-off.
func (s *Schedule) SetRandom(random func() float64) { s.random = random }
