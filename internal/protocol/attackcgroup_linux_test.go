//go:build !race

package protocol

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The attacks on a process in a memory cgroup, where the kernel kills it at the bound.

// What test/README.md states. A process that does nothing takes idleMiB.
const (
	idleMiB       = 13
	boundAnswer   = (idleMiB + 150) << 20
	boundOfSearch = (idleMiB + 30) << 20
)

var attackAll = flag.Bool("attack.all", false, "try each attack, and not only some")

// The process of a client outlives each attack in a cgroup of the size that is stated,
// without $GOMEMLIMIT. The test needs root and a memory cgroup of version 1 or 2.
func TestEachAttackIsSurvivedInAMemoryCgroup(t *testing.T) {
	if name := os.Getenv("ATTACK"); name != "" {
		beAttacked(t, name)
		return
	}
	testkit.Long(t)
	if out, err := attackIn(t, newCgroup(t, boundAnswer), greedy, ""); !killed(err) {
		t.Skipf("cgroups do not bound memory here: a process that takes twice as much ends with %v: %s", err, out)
	}
	groups := map[int]string{boundAnswer: newCgroup(t, boundAnswer), boundOfSearch: newCgroup(t, boundOfSearch)}
	for i, a := range attacks {
		if !*attackAll && i%32 != 0 {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			size := boundAnswer
			if strings.Contains(a.name, " search") {
				size = boundOfSearch
			}
			_, server := a.serve(t)
			out, err := attackIn(t, groups[size], a.name, server)
			if err != nil || !strings.Contains(string(out), "outcome: peak ") {
				t.Errorf("in a cgroup of %d MiB the process ends with %v: %s", size>>20, err, out)
			}
		})
	}
}

// greedy is the name of no attack: the process takes more than a cgroup of boundAnswer has.
const greedy = "greedy"

// beGreedy takes and uses twice the memory of boundAnswer.
func beGreedy() {
	all := make([]byte, 2*boundAnswer)
	for i := 0; i < len(all); i += os.Getpagesize() {
		all[i] = 1
	}
	fmt.Println("outcome: not killed", all[len(all)-1])
}

func killed(err error) bool {
	exit, ok := err.(*exec.ExitError)
	return ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// attackIn runs the child process of an attack in a cgroup, from its first instruction on.
func attackIn(t *testing.T, group, attack, endpoint string) ([]byte, error) {
	t.Helper()
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`,
		group, os.Args[0], "-test.run=^"+t.Name()[:strings.IndexByte(t.Name()+"/", '/')]+"$", "-test.timeout=1m")
	child.Env = append(os.Environ(), "ATTACK="+attack, "ENDPOINT="+endpoint, "GOMAXPROCS=2", "GOGC=100", "GOMEMLIMIT=off")
	return child.CombinedOutput()
}

// newCgroup makes a memory cgroup of this many bytes, and no swap, and returns its folder. It
// skips the test where that is not possible.
func newCgroup(t *testing.T, size int) string {
	t.Helper()
	parent, limits := "/sys/fs/cgroup", []string{"memory.max", "memory.swap.max"}
	// cgroups(7): version 1 has a tree for memory, version 2 one tree for all.
	if _, err := os.Stat(parent + "/memory/memory.limit_in_bytes"); err == nil {
		parent, limits = parent+"/memory", []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	} else if on, err := os.ReadFile(parent + "/cgroup.subtree_control"); err != nil || !strings.Contains(string(on), "memory") {
		t.Skip("there is no memory cgroup in /sys/fs/cgroup")
	}
	group, err := os.MkdirTemp(parent, "safebrowsing-test")
	if err != nil {
		t.Skip("cannot make a cgroup: ", err)
	}
	t.Cleanup(func() { removeCgroup(t, group) })
	if err := os.WriteFile(filepath.Join(group, limits[0]), []byte(strconv.Itoa(size)), 0o600); err != nil {
		t.Skip("cannot bound a cgroup: ", err)
	}
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs"`, group).CombinedOutput(); err != nil {
		t.Skipf("cannot enter a cgroup: %v: %s", err, out)
	}
	noSwap := size // version 1 counts memory and swap together
	if limits[1] == "memory.swap.max" {
		noSwap = 0
	}
	// A kernel without swap accounting has no such file.
	_ = os.WriteFile(filepath.Join(group, limits[1]), []byte(strconv.Itoa(noSwap)), 0o600)
	return group
}

// removeCgroup removes a cgroup, which is busy until the kernel has ended its last process.
func removeCgroup(t *testing.T, group string) {
	for range 100 {
		if syscall.Rmdir(group) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Log("cannot remove ", group)
}
