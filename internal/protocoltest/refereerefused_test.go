package protocoltest

import (
	"fmt"
	"testing"
	"time"
)

// batchers ask for several lists in one request.
var batchers = map[string]func(b *bench, names ...string){
	"v5": func(b *bench, names ...string) { b.lists(nil, names...) },
}

// A batch that is refused says nothing of its lists: the back-off is for all of them,
// and afterwards each is asked for by itself. A list that is refused by itself has
// a back-off of its own.
func TestRefereeTakesARefusedListByItself(t *testing.T) {
	for version, ask := range batchers {
		for _, status := range []int{400, 404} {
			name := fmt.Sprintf("%s, status %d, ", version, status)
			noWaits := func(b *bench) {
				b.SetMinimumWait("se-4b", time.Second)
				b.SetMinimumWait("mw-4b", time.Second)
			}
			refuse := func(b *bench, names ...string) {
				noWaits(b)
				b.Break("update", 1, Fault{Status: status})
				ask(b, names...)
			}
			notBefore(t, name+"a list", "back-off of one list", 15*time.Minute,
				func(b *bench) { refuse(b, "se-4b") }, func(b *bench) { ask(b, "se-4b") })
			notBefore(t, name+"a list twice", "back-off of one list", 30*time.Minute, func(b *bench) {
				refuse(b, "se-4b")
				time.Sleep(15 * time.Minute)
				refuse(b, "se-4b")
			}, func(b *bench) { ask(b, "se-4b") })
			notBefore(t, name+"a batch", "back-off", 15*time.Minute,
				func(b *bench) { refuse(b, "se-4b", "mw-4b") }, func(b *bench) { ask(b, "mw-4b") })
			inBubble(t, name+"another list", func(b *bench) {
				refuse(b, "se-4b")
				ask(b, "mw-4b")
				wantNone(b.T, b.violations.take())
			})
			inBubble(t, name+"the batch again", func(b *bench) {
				refuse(b, "se-4b", "mw-4b")
				time.Sleep(time.Hour)
				ask(b, "se-4b")
				time.Sleep(time.Second)
				wantNone(b.T, b.violations.take())
				ask(b, "se-4b", "mw-4b")
				wantOne(b.T, b.violations.take(), "unknown lists")
			})
			inBubble(t, name+"the batch after all were served", func(b *bench) {
				refuse(b, "se-4b", "mw-4b")
				time.Sleep(time.Hour)
				for _, list := range []string{"se-4b", "mw-4b"} {
					ask(b, list)
					time.Sleep(time.Second)
				}
				ask(b, "se-4b", "mw-4b")
				wantNone(b.T, b.violations.take())
			})
		}
		notBefore(t, version+", another status", "back-off", 15*time.Minute, func(b *bench) {
			b.Break("update", 1, Fault{Status: 403})
			ask(b, "se-4b")
		}, func(b *bench) { ask(b, "mw-4b") })
	}
}
