package updater

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrBusy says that another process or engine uses the folder.
var ErrBusy = errors.New("the folder is in use")

// NotDueError says that none of the lists may be fetched yet.
type NotDueError struct {
	Until time.Time // when the first of them may be
}

// Error implements error.
func (e *NotDueError) Error() string {
	return "nothing may be fetched before " + e.Until.Format(time.RFC3339)
}

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

// acquireNow is acquire for who does not wait.
func (u *Updater) acquireNow() error {
	schedule, store := u.cfg.Schedule, u.cfg.Store
	select {
	case schedule.turn <- struct{}{}:
	default:
		return ErrBusy
	}
	schedule.catchUp()
	defer schedule.unfollow()
	if store == nil {
		return nil
	}
	locked, err := store.lock.TryLock()
	if err == nil && locked {
		store.clean()
		var loadErr error
		if loadErr, err = schedule.own(); loadErr != nil {
			u.cfg.Report(Event{Kind: LoadFailed, Err: loadErr})
		}
	} else if err != nil {
		err = fmt.Errorf("locking the folder: %w", err)
	} else {
		err = ErrBusy
	}
	if err != nil {
		u.release()
	}
	return err
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
