package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"github.com/coredns/caddy"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

const (
	mib = 1 << 20

	// Where there is less memory than 32 times minHeadroom nothing is spent on speed, and the
	// collector runs when the heap has doubled, as always: on a router each MiB counts. More than maxHeadroom
	// gains next to nothing.
	memoryShare = 32
	minHeadroom = 16 * mib
	maxHeadroom = 64 * mib
)

// headroomOf returns by how many bytes the heap may grow between two collections, at least, on a
// machine with so much memory. 0 means that the default pace is right.
func headroomOf(memory int64) int64 {
	headroom := min(memory/memoryShare, maxHeadroom)
	if headroom < minHeadroom {
		return 0
	}
	return headroom
}

// ballast is memory that is never used. It takes no pages, but the collector counts it as live:
// the heap may grow by as much before it has doubled. GOGC cannot say that: it is a percentage,
// of a live heap that changes with the load and with the lists of other plugins. With the small
// heap of a DNS server the collector would run many times a second under load.
var ballast []byte

// tune has the process spend memory on speed, if there is enough. This belongs to this program
// and not to the plugin, since it is for the whole process.
func tune() {
	limit := debug.SetMemoryLimit(-1)
	usable := lookup.UsableMemory()
	headroom := headroomOf(usable)
	if headroom > 0 {
		warmStacks(nil)
	}
	if os.Getenv("GOGC") != "" {
		return
	}
	caddy.RegisterEventHook("pace", func(event caddy.EventName, _ any) error {
		if event == caddy.InstanceStartupEvent { // from here on it is known whether debug is set
			logPace(usable, int64(len(ballast)))
		}
		return nil
	})
	ballast = make([]byte, headroom)
	if limit != math.MaxInt64 { // GOMEMLIMIT is about pages, which the ballast does not take
		debug.SetMemoryLimit(limit + headroom)
	}
}

func logPace(memory, headroom int64) {
	known, pace := "It is not known how much memory there is", "has doubled"
	if memory > 0 {
		known = fmt.Sprintf("There are %d MiB of memory", memory/mib)
	}
	if headroom > 0 {
		pace = fmt.Sprintf("has grown by %d MiB, or has doubled if that is more", headroom/mib)
	}
	clog.Debugf("%s: the garbage collector runs when the heap %s. Set GOGC to change that.", known, pace)
}
