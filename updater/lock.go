package updater

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// The right to ask has two parts. The baton passes between the Updaters of a chain in this
// process, and the lock of the folder between processes and engines. An Updater takes the
// baton first and returns it last, so the next one of the chain finds the folder unlocked.

// acquire waits until the Updater before this one has ended, then for the lock of
// the store, and then reads again what either may have written since Load.
func (u *Updater) acquire(ctx context.Context) error {
	schedule := u.cfg.Schedule
	select {
	case schedule.hand.baton <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Before own, which saves the clocks that this takes over.
	stale := schedule.resume()
	if u.cfg.Store != nil {
		waited, err := u.lock(ctx)
		if err != nil {
			u.release()
			return err
		}
		stale = stale || waited
		u.reportSave("", u.own())
	}
	if stale {
		u.loadAgain()
	}
	u.saveRecalled()
	u.takeOver()
	// Only now: Load may take lists from the schedule before.
	schedule.hand.unfollow()
	return nil
}

// saveRecalled saves lists in memory that the folder does not have, as when a reload names another folder: the clocks
// are there, and the next start must not have these only. It knows nothing of what machines share.
func (u *Updater) saveRecalled() {
	if u.cfg.Store == nil || u.cfg.Schedule.sharer() != nil {
		return
	}
	for _, name := range u.cfg.Lists {
		_, err := os.Stat(u.cfg.Store.listPath(name))
		if l := u.lists[name]; l.held() && !l.TakenOver && (errors.Is(err, fs.ErrNotExist) || !l.unsaved.IsZero()) {
			u.reportSave(name, u.save(l))
		}
	}
}

// acquireNow is acquire without waiting: it returns ErrBusy instead.
func (u *Updater) acquireNow() error {
	schedule, store := u.cfg.Schedule, u.cfg.Store
	select {
	case schedule.hand.baton <- struct{}{}:
	default:
		return ErrBusy
	}
	schedule.resume()
	defer schedule.hand.unfollow()
	if store == nil {
		return nil
	}
	locked, err := store.tryLock()
	switch {
	case err != nil:
		err = fmt.Errorf("locking the folder: %w", err)
	case !locked:
		err = ErrBusy
	default:
		err = u.own()
	}
	if err != nil {
		u.release()
	}
	return err
}

// own begins to use the folder that is locked. It reports what cannot be read, and returns the error
// of saving.
func (u *Updater) own() error {
	u.cfg.Store.clean()
	loadErr, saveErr := u.cfg.Schedule.own()
	if loadErr != nil {
		u.cfg.Report(Event{Kind: LoadFailed, Err: loadErr})
	}
	return saveErr
}

// ErrNoLocks says that a folder has no locks, or that the file of the lock cannot be used.
var ErrNoLocks = errors.New("locking the folder")

// lockError is an error of locking. Without a file of the lock no file can be made there, and saving says so, too.
func (s *Store) lockError(err error) error {
	if _, missing := os.Lstat(s.lock.Path()); missing != nil {
		return fmt.Errorf("locking the folder: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrNoLocks, err)
}

// temporary reports whether an error will pass, as when a process has no file descriptors: it
// does not say that there are no locks. A file system that does not answer may say that for days.
func temporary(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
		Timeout() bool
	}](err)
	return ok && e.Temporary() && !e.Timeout()
}

// lockRetry is the time between attempts to lock a busy folder.
const lockRetry = time.Second

// lock takes the lock of the store, however long that takes, and reports whether it
// had to wait. Meanwhile it loads the lists that another process updates.
func (u *Updater) lock(ctx context.Context) (waited bool, err error) {
	for tries := 0; ; tries++ {
		locked, err := u.cfg.Store.tryLock()
		switch {
		case locked:
			return waited, nil
		case temporary(err):
			tries-- // nobody is known to have the lock
		case err != nil:
			// This file system has no locks. Continue: fresh lists are worth more
			// than protection from a second process, which is unlikely.
			u.reportSave("", u.cfg.Store.lockError(err))
			return waited, nil
		default:
			u.wait(tries)
		}
		waited = true
		if _, err := u.sleepUntil(ctx, time.Now().Add(lockRetry)); err != nil { // it moves the clocks after a suspend
			return waited, err
		}
	}
}

// wait does what is due while another process has the lock, after a number of attempts to take it.
func (u *Updater) wait(tries int) {
	store := u.cfg.Store
	if tries == 0 {
		if store.shared != nil { // before a start without lists
			u.follow()
		}
		u.cfg.Report(Event{Kind: store.busy()})
	}
	if store.shared != nil && (u.complete() || tries == followPatience) {
		u.contacted()
	}
	if tries%lookEvery == 0 || store.shared != nil { // a look at a Shared costs nothing
		u.follow()
	}
}

// followPatience is the number of attempts after which a process without lists stops waiting for
// the one that may fetch: by then that one has had its first contact.
const followPatience = 120

// lookEvery is the number of attempts to lock between two looks at the lists of the
// process that has the lock.
const lookEvery = 30

// follow loads what the process that has the lock has saved since the last look. A
// changed schedule is the sign: that process saves its lists first.
func (u *Updater) follow() {
	looked := u.cfg.Schedule.look()
	if u.cfg.Store.shared != nil && u.cfg.Store.locked() {
		u.followShared(looked)
		return
	}
	if !looked {
		return
	}
	if u.cfg.Store.changed(u.cfg.Lists) {
		u.loadAgain()
	}
	for _, name := range u.cfg.Lists {
		u.report(Followed, name, nil)
	}
}

// release ends what acquire or acquireNow began.
func (u *Updater) release() {
	// Disown first: once the folder is unlocked, another process writes the schedule, and
	// this one must not replace it.
	u.cfg.Schedule.disown()
	if u.cfg.Store != nil {
		u.cfg.Store.unlock()
	}
	<-u.cfg.Schedule.hand.baton
}
