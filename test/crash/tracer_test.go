//go:build linux && amd64

package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A call is one system call of a traced program that changes a watched folder, or that makes a change durable.
type call struct {
	name    string // create, write, sync, rename, unlink, mkdir, truncate, mode
	path    string
	to      string // of rename
	content []byte // of the file after a write or a truncate
}

func (c call) String() string { return c.name + " " + filepath.Base(c.path) }

// A tracer runs a program and stops it at each call that touches one of its folders.
type tracer struct {
	folders []string
	notes   string // a file whose writes are reported but are no points

	// point is told the number of each call, from 1, before the kernel executes it. It returns an error to give to the program instead
	// of executing the call, or errKill, or errHang.
	point func(n int, c call) error
	done  func(c call) // is told each call that the kernel has executed without an error; may be nil

	output string       // file of what the program prints; set by run, before any call
	pid    atomic.Int32 // of the program; 0: it does not run

	// released lets calls that hang continue, soon: at the next call of another thread.
	released atomic.Bool

	points  int
	waiting map[int]*pending // calls under way, by thread
	hanging map[int]bool     // threads in a call that hangs
}

// pending is a call between its entry and its exit.
type pending struct {
	call  *call         // nil: not watched
	errno syscall.Errno // given to the program; 0: none
}

// errKill tells the tracer to end the program before the call.
var errKill = errors.New("killed")

// errHang tells the tracer to leave the thread in the call, as a disk does that does not answer.
var errHang = errors.New("hangs")

const (
	wall    = 0x40000000 // __WALL: threads too
	sysGood = syscall.SIGTRAP | 0x80
)

// run traces cmd to its end. killed says that point asked for it; else err comes from the program.
func (tr *tracer) run(t *testing.T, cmd *exec.Cmd) (killed bool, err error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	output, err := os.CreateTemp(t.TempDir(), "output")
	testkit.Must(t, err)
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	tr.output = output.Name()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("Programs cannot be traced here: %v", err)
	}
	defer cmd.Process.Release()
	pid := cmd.Process.Pid
	tr.pid.Store(int32(pid))
	defer tr.pid.Store(0)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, wall, nil); err != nil || !status.Stopped() {
		t.Skipf("Programs cannot be traced here: %v", err)
	}
	const exitKill = 0x100000
	const options = syscall.PTRACE_O_TRACESYSGOOD | syscall.PTRACE_O_TRACECLONE | exitKill
	testkit.Must(t, syscall.PtraceSetOptions(pid, options))
	tr.points, tr.waiting, tr.hanging = 0, make(map[int]*pending), make(map[int]bool)
	tr.resume(pid, 0)
	for {
		tid, err := syscall.Wait4(-pid, &status, wall, nil) // its group: other children are not ours to reap
		tr.letGo()
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			t.Fatal(err)
		case status.Exited() || status.Signaled():
			if tid != pid {
				continue
			}
			return killed, ended(status, killed, output.Name())
		case status.StopSignal() == sysGood:
			if tr.stopped(t, tid) {
				killed = true
				syscall.Kill(pid, syscall.SIGKILL)
				continue
			}
			if !tr.hanging[tid] {
				tr.resume(tid, 0)
			}
		case status.StopSignal() == syscall.SIGTRAP || status.StopSignal() == syscall.SIGSTOP: // a new thread
			tr.resume(tid, 0)
		default:
			tr.resume(tid, int(status.StopSignal()))
		}
	}
}

// ended returns the error of a program that ended by itself, with what it printed.
func ended(status syscall.WaitStatus, killed bool, output string) error {
	if killed || status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	text, _ := os.ReadFile(output)
	return fmt.Errorf("it ended with %#x: %s", int(status), text)
}

// letGo resumes what hangs, if it is released.
func (tr *tracer) letGo() {
	if !tr.released.Load() {
		return
	}
	for tid := range tr.hanging {
		delete(tr.hanging, tid)
		tr.resume(tid, 0)
	}
}

// resume lets a thread run to its next entry or exit. An error means that it has ended.
func (tr *tracer) resume(tid, signal int) { _ = syscall.PtraceSyscall(tid, signal) }

// stopped handles a stop of a thread at the entry or the exit of a call. It reports whether the program must end here.
func (tr *tracer) stopped(t *testing.T, tid int) (kill bool) {
	var regs syscall.PtraceRegs
	if syscall.PtraceGetRegs(tid, &regs) != nil {
		return false // it has ended
	}
	p, ok := tr.waiting[tid]
	if !ok {
		return tr.entered(t, tid, &regs)
	}
	delete(tr.waiting, tid)
	switch {
	case p.call == nil:
	case p.errno != 0:
		regs.Rax = uint64(-int64(p.errno))
		testkit.Must(t, syscall.PtraceSetRegs(tid, &regs))
	case int64(regs.Rax) >= 0 && tr.done != nil:
		if p.call.name == "write" || p.call.name == "truncate" {
			p.call.content, _ = os.ReadFile(p.call.path)
		}
		tr.done(*p.call)
	}
	return false
}

// entered handles the entry of a call.
func (tr *tracer) entered(t *testing.T, tid int, regs *syscall.PtraceRegs) (kill bool) {
	p := &pending{call: tr.parse(tid, regs)}
	tr.waiting[tid] = p
	if p.call == nil || p.call.path == tr.notes {
		return false
	}
	tr.points++
	err := tr.point(tr.points, *p.call)
	if errors.Is(err, errKill) {
		return true
	}
	if errors.Is(err, errHang) {
		tr.hanging[tid] = true
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		p.errno = errno
		regs.Orig_rax = ^uint64(0) // no such call
		testkit.Must(t, syscall.PtraceSetRegs(tid, regs))
	}
	return false
}

// parse returns the call that a thread is about to make, nil if it is not watched.
func (tr *tracer) parse(tid int, regs *syscall.PtraceRegs) *call {
	var c call
	switch regs.Orig_rax {
	case syscall.SYS_OPENAT:
		c = call{name: "create", path: text(tid, regs.Rsi)}
		if _, err := os.Lstat(c.path); err == nil || regs.Rdx&syscall.O_CREAT == 0 {
			return nil
		}
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64:
		c = call{name: "write", path: opened(tid, regs.Rdi)}
	case syscall.SYS_FTRUNCATE:
		c = call{name: "truncate", path: opened(tid, regs.Rdi)}
	case syscall.SYS_FSYNC, syscall.SYS_FDATASYNC:
		c = call{name: "sync", path: opened(tid, regs.Rdi)}
	case syscall.SYS_FCHMOD, syscall.SYS_FCHOWN:
		c = call{name: "mode", path: opened(tid, regs.Rdi)}
	case syscall.SYS_RENAME:
		c = call{name: "rename", path: text(tid, regs.Rdi), to: text(tid, regs.Rsi)}
	case syscall.SYS_RENAMEAT, sysRenameat2:
		c = call{name: "rename", path: text(tid, regs.Rsi), to: text(tid, regs.R10)}
	case syscall.SYS_UNLINK:
		c = call{name: "unlink", path: text(tid, regs.Rdi)}
	case syscall.SYS_UNLINKAT:
		c = call{name: "unlink", path: text(tid, regs.Rsi)}
		if _, err := os.Lstat(c.path); err != nil {
			return nil
		}
	case syscall.SYS_MKDIRAT:
		c = call{name: "mkdir", path: text(tid, regs.Rsi)}
		if _, err := os.Lstat(c.path); err == nil {
			return nil
		}
	default:
		return nil
	}
	if !tr.watched(c.path) {
		return nil
	}
	return &c
}

const sysRenameat2 = 316 // linux/amd64; package syscall does not have it

func (tr *tracer) watched(path string) bool {
	if path == tr.notes {
		return true
	}
	for _, folder := range tr.folders {
		if path == folder || strings.HasPrefix(path, folder+"/") {
			return true
		}
	}
	return false
}

// opened returns the path of an open file.
func opened(tid int, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	return path
}

// text returns the path at an address of the program.
func text(tid int, address uint64) string {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return ""
	}
	defer memory.Close()
	raw := make([]byte, syscall.PathMax)
	n, _ := memory.ReadAt(raw, int64(address)) // it may end within a page that cannot be read
	path, _, _ := bytes.Cut(raw[:n], []byte{0})
	return string(path)
}
