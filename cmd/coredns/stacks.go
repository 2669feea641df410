package main

import (
	"runtime"
	"sync"
)

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

// warmStacks has new goroutines begin with a larger stack, until end is closed. It reserves
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
