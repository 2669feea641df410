package engine

import (
	"context"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

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
