package programtest

import (
	"flag"
	"runtime"
	"strconv"
)

// SideBySide has at least n tests that call Parallel run at once, unless -parallel says how
// many. It is for TestMain of tests that wait more than they work: without it there are as many
// as processors.
func SideBySide(n int) {
	flag.Parse()
	processors := runtime.GOMAXPROCS(0)
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(processors) {
		_ = f.Value.Set(strconv.Itoa(max(n, processors))) // a number is never refused
	}
}
