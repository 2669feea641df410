package engine

import (
	"context"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// keyInterval is how often the file of the key is read: as often as the operator's
// own lists are checked.
const keyInterval = 5 * time.Second

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
		next, err := say.ReadKey(e.settings.KeyFile)
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
