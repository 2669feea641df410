package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

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

// tune spends memory on speed, if there is enough. This belongs to this program
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

// CoreDNS answers each query in a goroutine of its own. Such a goroutine begins with a small stack,
// which is doubled and copied until the chain of plugins fits, and freed at the end: about a fifth
// of the CPU time of a query. The runtime begins with what stacks had in use on average when the
// collector last ran (gcComputeStartingStackSize in runtime/stack.go), but a server has many
// goroutines that wait with next to nothing in use. So there are some that wait with as much in
// use as a query needs, and the average becomes right. GODEBUG=adaptivestackstart=0 turns it off.
const (
	// roomyStacks is how many goroutines wait with room. The average is right as long as there are no
	// more others: the queries of a burst that wait for a core, and what a server has that waits.
	roomyStacks = 192
	stackOfOne  = 14 << 10 // bytes that each has in use; its stack has 16 KiB
)

// With warmStacks new goroutines begin with a larger stack, until end is closed. It reserves
// roomyStacks times 16 KiB of memory, and uses some 10 KiB of each: see waitWithRoom.
func warmStacks(end <-chan struct{}) {
	var begun sync.WaitGroup
	begun.Add(roomyStacks)
	for range roomyStacks {
		go waitWithRoom(&begun, end, false)
	}
	begun.Wait()
	runtime.GC() // it takes the average
}

// waitWithRoom has room in its frame, which counts as in use, but never writes to it: the pages
// between both ends of the stack take no memory.
//
//go:noinline
func waitWithRoom(begun *sync.WaitGroup, end <-chan struct{}, write bool) {
	if write {
		var room [stackOfOne]byte
		use(&room)
	}
	begun.Done()
	<-end
}

// use keeps the compiler from leaving room out.
//
//go:noinline
func use(room *[stackOfOne]byte) { room[0]++ }
