package files

import (
	"sync/atomic"
	"time"
)

// A write can hang for minutes, or for ever, in a system call that nothing interrupts: of a network
// drive or a failing card. What it replaces is on disk whole, the old or the new file, so nothing
// is lost if the process ends first.

// WaitLimit is how long Wait waits. Several ends come one after the other, and a name server has
// 2 seconds for all of them. Only tests change it, before anything waits: on a machine with
// much other work a disk is slow that does not hang.
var WaitLimit = 800 * time.Millisecond

// hurried is the limit while another wait continues that was given up: the same disk hangs.
func hurried() time.Duration { return WaitLimit / 10 }

// hung counts waits that were given up and have not ended. It is a package variable because those who
// wait do not know each other, and the process has its disks in common.
var hung atomic.Int32

// Wait calls end and reports whether it has returned within WaitLimit. If not, end continues in a
// goroutine, which nothing stops. While there is such a goroutine, the limit is a tenth. Wait
// is safe for concurrent use.
func Wait(end func()) bool {
	limit := WaitLimit
	if hung.Load() > 0 {
		limit = hurried()
	}
	ended := make(chan struct{})
	var late atomic.Bool
	go func() { // ends with end
		defer close(ended)
		end()
		if late.Swap(true) {
			hung.Add(-1)
		}
	}()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-ended:
		return true
	case <-timeout.C:
	}
	hung.Add(1)
	if late.Swap(true) { // it has just returned
		hung.Add(-1)
		return true
	}
	return false
}
