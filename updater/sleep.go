package updater

import (
	"context"
	"time"
)

// The sleep of Run and Once, which notices a suspend. A wake-up counts as a start: the request
// after it waits for a first contact ("Request Frequency").

// sleepUntil returns at due, or earlier with woke set if the machine has been
// suspended meanwhile.
func (u *Updater) sleepUntil(ctx context.Context, due time.Time) (woke bool, err error) {
	for {
		before, booted := time.Now(), u.sinceBoot()
		wait := min(due.Sub(before), u.slice)
		if wait <= 0 {
			return false, ctx.Err()
		}
		if err := u.sleep(ctx, wait); err != nil {
			return false, err
		}
		// The monotonic clock measures the waits but stops during a suspend. The
		// clock since boot runs on, and unlike the wall clock it cannot be set.
		now := time.Now()
		if suspended := u.sinceBoot() - booted - now.Sub(before); suspended > overshoot {
			u.cfg.Schedule.forward(suspended)
			return true, nil
		}
		// Systems without that clock: the wall clock has advanced too far. It may have been
		// set instead. Then a needless first contact costs at most a minute.
		if now.Round(0).Sub(before.Round(0)) > wait+overshoot {
			return true, nil
		}
	}
}

// sleepSlice limits one sleep, so that a wake-up is noticed soon.
const sleepSlice = time.Minute

// overshoot is how late a sleep must end to count as a suspend.
const overshoot = 15 * time.Second

// sleep waits for d, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
