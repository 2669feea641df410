//go:build linux && amd64

package crash

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var all = flag.Bool("crash.all", false, "try every point and every kind of failure; without it a sample")

const (
	scenarioVariable = "CRASH_SCENARIO"
	placeVariable    = "CRASH_PLACE"
)

func TestMain(m *testing.M) {
	if runServer() {
		return
	}
	if i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == os.Getenv(scenarioVariable) }); i >= 0 {
		if err := scenarios[i].act(place{os.Getenv(placeVariable)}); err != nil {
			fmt.Println(err)
		}
		return
	}
	flag.Parse()
	if err := serveList(func() error { askedNow <- struct{}{}; return nil }); err != nil {
		panic(err)
	}
	m.Run()
	os.RemoveAll(programs)
}

// programs is the folder of the program that the tests build.
var programs = filepath.Join(os.TempDir(), fmt.Sprintf("crash-programs-%d", os.Getpid()))

// program returns the path of the program safebrowsing.
var program = sync.OnceValue(func() string {
	built, err := testkit.Build(programs, "safebrowsing")
	if err != nil {
		panic(err)
	}
	return built["safebrowsing"]
})

// program returns the command that acts out a scenario.
func (s scenario) program(p place) *exec.Cmd {
	if s.command != nil {
		return exec.Command(program(), s.command(p)...)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), scenarioVariable+"="+s.name, placeVariable+"="+p.root, "GOMAXPROCS=2", "GODEBUG=asyncpreemptoff=1", "RUNTIME_DIRECTORY="+p.spare())
	return cmd
}

func (p place) said(t *testing.T) []note {
	t.Helper()
	raw, err := os.ReadFile(p.notes())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return parseNotes(t, raw)
}

func stride() int {
	if *all {
		return 1
	}
	return 41
}

func tried() []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.slow && !*all })
}

// trouble decides what happens to a call: see tracer.point. It is asked about the call at which
// the trouble begins, and about all that follow.
type trouble func(p place, c call, first bool) error

// eachPoint runs a scenario again and again. The nth time, the trouble begins at the nth call;
// check looks at what is left. It returns the number of points that were tried.
func (s scenario) eachPoint(t *testing.T, at trouble, check func(t *testing.T, p place)) (tried int) {
	t.Helper()
	// The first point varies with the scenario, so that the samples of all are not alike.
	for n := 1 + len(s.name)%stride(); ; n += stride() {
		p := s.newPlace(t)
		var reached *call
		tr := &tracer{folders: p.folders(), notes: p.notes(), point: func(i int, c call) error {
			if i < n {
				return nil
			}
			if i == n {
				reached = &c
			}
			return at(p, c, i == n)
		}}
		killed, err := tr.run(t, s.program(p))
		switch {
		case s.command == nil && err != nil, reached == nil && err != nil:
			t.Errorf("point %d, %v: %v", n, reached, err)
		case s.command != nil && err == nil && !killed:
			testkit.Must(t, p.say("done"))
		}
		failed := t.Failed()
		check(t, p)
		if t.Failed() && !failed {
			t.Errorf("that was point %d, %v; killed: %t; %v", n, reached, killed, p.said(t))
		}
		if reached == nil {
			return tried
		}
		tried++
	}
}

// A program that is killed at any of its writes leaves the old or the new list, keeps all waits, and the next start works.
func TestAKilledProgramLosesNothing(t *testing.T) {
	testkit.Long(t)
	for _, s := range tried() {
		t.Run(s.name, func(t *testing.T) {
			begun := time.Now()
			tried := s.eachPoint(t, func(place, call, bool) error { return errKill }, func(t *testing.T, p place) {
				s.check(t, p, p.said(t), false)
			})
			if *all && tried < 5 {
				t.Errorf("%d points are too few", tried)
			}
			t.Logf("%d points, %s", tried, time.Since(begun).Round(time.Millisecond))
		})
	}
}

// A call that fails, because the disk is full or broken, stops no program and loses no wait.
func TestAWriteThatFailsLosesNothing(t *testing.T) {
	testkit.Long(t)
	for _, fault := range []struct {
		errno syscall.Errno
		once  bool // else each call fails from then on
	}{
		{syscall.ENOSPC, true}, {syscall.ENOSPC, false}, {syscall.EIO, true}, {syscall.EIO, false}, {syscall.EACCES, true}, {syscall.EROFS, false},
	} {
		if !*all && fault.errno != syscall.ENOSPC {
			continue
		}
		at := func(p place, c call, first bool) error {
			// The spare folder is on another disk than the others.
			if fault.once && !first || !fault.once && strings.HasPrefix(c.path, p.spare()) {
				return nil
			}
			return fault.errno
		}
		for _, s := range tried() {
			t.Run(fmt.Sprintf("%s/%v, once %t", s.name, fault.errno, fault.once), func(t *testing.T) {
				tried := s.eachPoint(t, at, func(t *testing.T, p place) {
					said := p.said(t)
					// A list that could not be saved is fetched again after a restart.
					if count(said, "store failed") > 0 {
						said = slices.DeleteFunc(said, func(n note) bool { return n.what == "done" })
					}
					s.check(t, p, said, true)
				})
				t.Logf("%d points", tried)
			})
		}
	}
}

// A power failure loses what was not synced, in any combination: see disk.
func TestAPowerFailureLosesNothing(t *testing.T) {
	testkit.Long(t)
	for _, s := range tried() {
		t.Run(s.name, func(t *testing.T) {
			p := s.newPlace(t)
			d := newDisk(t, p.folders())
			seen := make(map[[32]byte]bool)
			var said []note
			points, tried := 0, 0
			try := func() {
				points++
				for _, left := range d.afterPowerFailure(t) {
					sum := left.sum()
					sum[0] ^= byte(len(said)) // the same files after a request are another case
					if seen[sum] {
						continue
					}
					seen[sum] = true
					if len(seen)%stride() != 0 && !*all {
						continue
					}
					tried++
					s.afterPowerFailure(t, p, left, said)
				}
			}
			tr := &tracer{folders: p.folders(), notes: p.notes(), point: func(int, call) error { return nil }, done: func(c call) {
				if c.path == p.notes() {
					said = parseNotes(t, c.content)
				} else {
					d.do(t, c)
				}
				try()
			}}
			_, err := tr.run(t, s.program(p))
			testkit.Is(t, "the program", err, nil)
			if s.command != nil {
				said = []note{{"done", time.Now()}}
				try()
			}
			t.Logf("%d points, %d states, %d tried", points, len(seen), tried)
		})
	}
}

// afterPowerFailure checks what is left, in a place of its own.
func (s scenario) afterPowerFailure(t *testing.T, p place, left state, said []note) {
	t.Helper()
	after := scenario{prepare: nothing}.newPlace(t)
	left.write(t, p, after)
	failed := t.Failed()
	s.check(t, after, said, true)
	if t.Failed() && !failed {
		t.Errorf("that was after %v with %.99q", said, left)
	}
}
