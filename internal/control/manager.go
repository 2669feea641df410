package control

import (
	"context"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// tellEvery is how often the service manager is told a headline that has changed.
const tellEvery = 5 * time.Second

// TellManager tells the service manager, if there is one, that this process serves, and from then on the headline of
// its status. The ports listen by now, and server blocks have started: they have the lists of their folder, or none is
// there. What the server of lists does, and when, is no part of a start. It returns at once.
func TellManager() {
	if say.Managed() {
		go tell(context.Background(), block.ThisProcess().Report, tellEvery)
	}
}

// TellManagerEnd tells the service manager, if there is one, that this process ends.
func TellManagerEnd() { _ = say.Notify("STOPPING=1") } // it has asked for that, or sees it soon

// tell tells the service manager what a report says, until ctx ends. What could not be told is told
// again: a service that is not ready in time would be ended.
func tell(ctx context.Context, report func() status.Report, every time.Duration) {
	trouble := say.Notify("READY=1") // before a report: it may wait for a disk
	if trouble != nil {
		log.Warningf("The service manager cannot be told that CoreDNS serves: %v. It is told again every %s", trouble, every)
	}
	said := ""
	look := func() {
		if text := report().Headline; trouble != nil || text != said {
			if trouble = say.Notify("READY=1", "STATUS="+text); trouble == nil {
				said = text
			}
		}
	}
	look()
	files.Every(ctx, every, look)
}
