package updater

import (
	"context"
	"time"
)

// Once does one round of what Run does, in place of it: it publishes the lists
// that are in the store, waits for the first contact, and fetches what is due in
// one request. It returns ErrBusy if the lock of the store is taken, for which it
// does not wait, a *NotDueError if the schedule forbids every fetch, and the
// error of a schedule that cannot be saved: the next call would ask too early.
// After any of these errors nothing has been asked. What became of the request
// and of each list is told to Config.Report, and is no error.
func (u *Updater) Once(ctx context.Context) error {
	if err := u.acquireNow(); err != nil {
		return err
	}
	defer u.release()
	u.Load()
	if len(u.cfg.Lists) == 0 {
		return nil
	}
	if len(u.cfg.Schedule.dueNow(u.cfg.Lists, time.Now())) == 0 {
		return &NotDueError{Until: u.cfg.Schedule.due(u.cfg.Lists)}
	}
	if err := u.awaitContact(ctx); err != nil {
		return err
	}
	u.update(ctx)
	return ctx.Err()
}

// awaitContact waits for the first contact, and after a wake-up once more.
func (u *Updater) awaitContact(ctx context.Context) error {
	for {
		woke, err := u.sleepUntil(ctx, time.Now().Add(u.cfg.FirstContact()))
		if err != nil || !woke {
			return err
		}
		u.cfg.Report(Event{Kind: WokeUp})
	}
}
