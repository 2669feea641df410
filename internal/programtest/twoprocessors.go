package programtest

import "runtime"

// TwoProcessors lets Go use two processors at least, for TestMain of tests whose clock is
// simulated. With one, the program sleeps before it syncs a file, and while it works on lists, so
// that queries are answered meanwhile: the simulated clock would move by that.
func TwoProcessors() { runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) }
