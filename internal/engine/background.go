package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// SinceBoot is updater.SinceBoot.
func SinceBoot() time.Duration { return updater.SinceBoot() }

// keyInterval is how often the file of the key is read: as often as the operator's
// own lists are checked.
const keyInterval = 5 * time.Second

// maxKey is the most bytes of that file. Tokens of Google have some 2 kB at most.
const maxKey = 64 << 10

// runWithKeys keeps the lists fresh until ctx ends, with the key or token that is in the
// file. A new key has a first contact of its own: for the server it is another client.
// A token is replaced about every hour by one of the same account. While the file cannot
// be read the old one stays: somebody may be replacing the file.
func (e *Engine) runWithKeys(ctx context.Context, key string) {
	for ctx.Err() == nil {
		running, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { e.updater.Run(running) })
		next := e.awaitKey(ctx, key)
		end()
		wg.Wait()
		if ctx.Err() != nil {
			return
		}
		key = next
		if err := e.rekey(key); err != nil {
			e.reporter.report(updater.Event{Kind: updater.StoreFailed, Err: err})
		}
	}
}

// rekey puts a new key or token in use, in one step with its clocks. No fetch is under way.
func (e *Engine) rekey(key string) error {
	use := func() { _ = e.client.SetKey(key) } // awaitKey has checked it
	if e.settings.Token {
		log.Debugf("The token in %s has changed and is in use", e.settings.KeyFile)
		e.reporter.startsAgain()
		return e.Schedule.Renew(e.settings.Origin(key).Token, use)
	}
	log.Infof("The API key in %s has changed and is in use", e.settings.KeyFile)
	e.reporter.rekeyed()
	return e.Schedule.Rekey(e.settings.Origin(key).Asker, use)
}

// awaitKey returns the next key that the file holds and the client can use. It
// returns the same one when ctx ends.
func (e *Engine) awaitKey(ctx context.Context, key string) string {
	ticker := time.NewTicker(keyInterval)
	defer ticker.Stop()
	var trouble say.Trouble
	for {
		select {
		case <-ctx.Done():
			return key
		case <-ticker.C:
		}
		next := key
		raw, err := files.Read(e.settings.KeyFile, maxKey) // no pipe, whose reader could wait for ever
		if err == nil {
			next, err = say.KeyIn(e.settings.KeyFile, raw)
		}
		if err == nil && next != key {
			err = protocol.CheckKey(e.settings.Credential(), next)
		}
		began, _ := trouble.Note(err)
		switch {
		case began:
			log.Warningf("Cannot replace the %s in %s: %v. The old one stays in use; the file is read again every 5 seconds", e.settings.Credential(), e.settings.KeyFile, err)
		case err == nil && next != key:
			return next
		}
	}
}

// tellEnding logs that Google ends the protocol: a WARNING at once, and an ERROR from the day
// on. It ends after that, or with ctx.
func tellEnding(ctx context.Context, e protocol.Ending) {
	now := time.Now()
	if !e.Over(now) {
		log.Warningf("%s", e.Text(now))
	}
	for ; !e.Over(now); now = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(time.Until(e.At), time.Hour)): // the clock may be set meanwhile
		}
	}
	log.Errorf("%s", e.Text(now))
}

// unlistedRetry is the wait after a failure: the time of a back-off that Google's server would
// ask for at most after a first one ("Request Frequency").
const unlistedRetry = 30 * time.Minute

// lookForRealtime asks the server once for the names of its lists, and logs a WARNING if it has
// not the one that mode realtime needs. A server without it answers searches as if nothing was
// a threat that is in none of its lists. It ends with its first answer, or with ctx.
func (e *Engine) lookForRealtime(ctx context.Context) {
	firstContact := e.firstContact
	if firstContact == nil {
		firstContact = func() time.Duration { return rand.N(time.Minute) }
	}
	for wait := firstContact(); ; wait = unlistedRetry {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		lists, err := e.client.Lists(ctx)
		if err != nil {
			log.Debugf("Cannot ask %s for the names of its lists: %v", e.settings.Address(), err)
			continue
		}
		if !slices.ContainsFunc(lists, func(l protocol.ListInfo) bool { return l.Name == protocol.GlobalCache }) {
			log.Warningf("%s does not have list %s, as a relay without -realtime: it confirms only what its own lists hold, and so mode %s blocks no more than mode %s. Start the relay with -realtime, or write mode %[4]s",
				e.settings.Address(), protocol.GlobalCache, lookup.NoStorage, lookup.Local)
		}
		return
	}
}
