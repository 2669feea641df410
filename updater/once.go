package updater

import (
	"context"
	"time"
)

// Once is for a program that runs and ends, such as a command or the job of a timer. It
// keeps the same rules as Run: both take the same locks and save the same schedule.

// Once does a single round, instead of Run: it publishes the lists in the store,
// waits for the first contact, up to a minute, and fetches what is due.
//
// It returns ErrBusy at once if the lock of the store is taken; a *NotDueError if the
// schedule does not allow any fetch; and an error if the schedule cannot be saved, as
// the next call would then ask too early. With these errors it has sent nothing. It
// returns the error of ctx if that ends. The outcome of the request and of each list
// goes to Config.Report and is not an error.
func (u *Updater) Once(ctx context.Context) error {
	if err := u.acquireNow(); err != nil {
		return err
	}
	defer u.release()
	u.Load()
	if len(u.cfg.Lists) == 0 {
		return nil
	}
	if u.cfg.Schedule.seeks(u.cfg.Lists, time.Now()) { // somebody may have repaired the network
		u.look(ctx)
	}
	// Before the first contact: nothing is gained by waiting a minute for this error.
	if len(u.cfg.Schedule.dueNow(u.cfg.Lists, time.Now())) == 0 {
		return &NotDueError{Until: u.cfg.Schedule.due(u.cfg.Lists)}
	}
	if err := u.awaitContact(ctx); err != nil {
		return err
	}
	u.update(ctx)
	return ctx.Err()
}

// awaitContact waits for the first contact, and again after a suspend.
func (u *Updater) awaitContact(ctx context.Context) error {
	for {
		woke, err := u.sleepUntil(ctx, time.Now().Add(u.cfg.FirstContact()))
		if err != nil || !woke {
			return err
		}
		u.cfg.Report(Event{Kind: WokeUp})
	}
}
