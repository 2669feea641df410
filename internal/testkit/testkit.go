// Package testkit is what tests of several packages need: programs and Redis servers as
// processes, free addresses, a network that can be cut, log lines, metrics, certificates, and keys
// in wrong places. Only tests import it. It imports nothing of this module, so that the tests of
// every package may import it.
package testkit

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// The default folder of the user who tests is left alone: a pause in it would hold for the servers of tests, too.
func init() {
	const variable = "STATE_DIRECTORY"
	if os.Getenv(variable) != "" { // a process that a test has started
		return
	}
	if err := os.Setenv(variable, filepath.Join(os.TempDir(), "safebrowsing-test-"+strconv.Itoa(os.Getpid()))); err != nil {
		panic(err)
	}
}

// Until waits for something that other goroutines bring about, for 40 seconds at least.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for range 8000 {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("Still waiting: %s", what)
}

// Long skips a test that takes half a second or more when only a quick run is wanted, with -short.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it takes long")
	}
}

// SameDay waits until a day has ended that ends within a minute, for a test of what is counted by the day.
func SameDay(t testing.TB) {
	t.Helper()
	now := time.Now()
	if left := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.Local).Sub(now); left < time.Minute {
		t.Logf("the day ends in %s", left)
		time.Sleep(left)
	}
}

// Must ends a test if something that it needs has failed.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Program returns the path of a program that a test needs, see Need.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	Need(t, err)
	return path
}

// Need skips a test that cannot run here, or fails it where $CI is set: .ci/tools installs what tests
// need. err says what is missing; nil: nothing.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("This test cannot run: %v", err)
	default:
		t.Skipf("This test cannot run: %v. .ci/tools installs what tests need", err)
	}
}

// Write writes a file and returns its path.
func Write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Read returns the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	Must(t, err)
	return string(raw)
}

// SideBySide runs at least n tests that call Parallel at once, unless -parallel says how
// many. It is for TestMain of tests that wait more than they work: without it there are as many
// as processors.
func SideBySide(n int) {
	flag.Parse()
	processors := runtime.GOMAXPROCS(0)
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(processors) {
		_ = f.Value.Set(strconv.Itoa(max(n, processors))) // a number is never refused
	}
}

// Noon makes it noon in the time zone of this process, for TestMain of tests about what is counted by
// day: a count begins anew at midnight. Programs that a test starts keep the zone of the machine.
func Noon() { time.Local = time.FixedZone("LMT", (12-time.Now().UTC().Hour())*3600) }

// TwoProcessors lets Go use two processors at least, for TestMain of tests whose clock is
// simulated. With one, the program sleeps before it syncs a file, and while it works on lists, so
// that queries are answered meanwhile: the simulated clock would move by that.
func TwoProcessors() { runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) }
