package updater

import (
	"context"
	"fmt"
	"time"
)

// acquire waits for the Updater that this one follows to end, and for the lock of
// the store, and then reads anew what they may have written since Load.
func (u *Updater) acquire(ctx context.Context) error {
	schedule := u.cfg.Schedule
	select {
	case schedule.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	stale := schedule.catchUp()
	if u.cfg.Store != nil {
		waited, err := u.lock(ctx)
		if err != nil {
			u.release()
			return err
		}
		stale = stale || waited
		u.cfg.Store.clean()
		loadErr, saveErr := schedule.own()
		if loadErr != nil {
			u.cfg.Report(Event{Kind: LoadFailed, Err: loadErr})
		}
		u.saved("", saveErr)
	}
	if stale {
		u.Load()
	}
	schedule.unfollow()
	return nil
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

// lockRetry is how often a busy folder is tried again.
const lockRetry = time.Second

// lock takes the lock of the store, for as long as it takes, and reports whether
// it had to wait. Meanwhile lists that another process updates are loaded.
func (u *Updater) lock(ctx context.Context) (waited bool, err error) {
	store := u.cfg.Store
	for tries := 0; ; tries++ {
		locked, err := store.lock.TryLock()
		if locked {
			return waited, nil
		}
		if err != nil {
			// No lock to be had here (an odd file system). Go on: a second
			// process is less likely than a use for fresh lists.
			u.saved("", fmt.Errorf("locking the folder: %w", err))
			return waited, nil
		}
		if tries == 0 {
			u.cfg.Report(Event{Kind: LockBusy})
		}
		if tries%lookEvery == 0 {
			u.follow()
		}
		waited = true
		if err := sleep(ctx, lockRetry); err != nil {
			return waited, err
		}
	}
}

// lookEvery is how many tries to take the lock lie between looks at the lists of
// the process that has it.
const lookEvery = 30

// follow takes over what the process that has the folder has done since the last
// look. It saves its lists before its schedule.
func (u *Updater) follow() {
	if !u.cfg.Schedule.look() {
		return
	}
	if u.cfg.Store.changed(u.cfg.Lists) {
		u.Load()
	}
	for _, name := range u.cfg.Lists {
		u.report(Followed, name, nil)
	}
}

func (u *Updater) release() {
	u.cfg.Schedule.disown()
	if u.cfg.Store != nil {
		u.cfg.Store.lock.Close()
	}
	<-u.cfg.Schedule.turn
}
