package test

import (
	"flag"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// partVariable has the number of the part that a process runs, see inParts.
const partVariable = "SAFEBROWSING_TEST_PART"

// inParts runs the calling test in n processes, beside other tests. It is for tests that wait more
// than they work: engines, log and metrics are those of a process, so that two such tests cannot
// be in one. In each of these processes it returns its part, from 0 to n-1, and true. In
// the process of go test it returns false, after their end: the test has nothing left to do.
func inParts(t *testing.T, n int) (part int, mine bool) {
	t.Helper()
	if text := os.Getenv(partVariable); text != "" {
		part, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return part, true
	}
	t.Parallel()
	var all sync.WaitGroup
	for part := range n {
		all.Go(func() { runPart(t, part) })
	}
	all.Wait()
	return 0, false
}

// apart is inParts with one part. It reports whether this is the process of the test.
func apart(t *testing.T) bool {
	t.Helper()
	_, mine := inParts(t, 1)
	return mine
}

// runPart runs a part of a test in a process of its own and repeats what it says.
func runPart(t *testing.T, part int) {
	c := exec.Command(os.Args[0], partFlags(t)...)
	c.Env = append(os.Environ(), partVariable+"="+strconv.Itoa(part))
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("part %d: %v\n%s", part, err, out)
		return
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS") {
			_, _ = t.Output().Write([]byte(line))
		}
	}
}

// partFlags returns the flags of a process that runs the calling test only, as this one was
// asked to: the same subtests, with the same flags of this package.
func partFlags(t *testing.T) []string {
	_, subtests, some := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	run := "^" + t.Name() + "$"
	if some {
		run += "/" + subtests
	}
	flags := []string{"-test.v", "-test.run=" + run, "-test.short=" + strconv.FormatBool(testing.Short())}
	if deadline, ok := t.Deadline(); ok { // then this process ends, too
		flags = append(flags, "-test.timeout="+time.Until(deadline).String())
	}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			flags = append(flags, "-"+f.Name+"="+f.Value.String())
		}
	})
	return flags
}
