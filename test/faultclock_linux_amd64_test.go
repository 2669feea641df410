package test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	golog "log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A process whose wall clock is wrong: a CoreDNS, and a relay if there is to be one, in a
// process of their own. Its tracer changes what the system tells it about the time. Timers and
// the monotonic clock go on as they are, as when somebody sets the clock of a machine.

// Variables of such a process.
const (
	clockCorefile = "FAULT_CLOCK_COREFILE"
	clockRelay    = "FAULT_CLOCK_RELAY" // addresses to listen on and to ask, and the folder; "": no relay
)

// clockFaults are the rows about clocks: what the clock is ahead of the time, in turn.
func clockFaults() map[string]fault {
	return map[string]fault{
		"clock a day ahead": {clock: []time.Duration{24 * time.Hour}, good: true},
		"clock a day back":  {clock: []time.Duration{-24 * time.Hour}, good: true},
		"clock jumps":       {clock: []time.Duration{24 * time.Hour, 0, -24 * time.Hour, 48 * time.Hour}, good: true},
	}
}

// shiftEach is how long a clock that jumps stays.
const shiftEach = 100 * time.Millisecond

// serveWithWrongClock is the main function of the process. It returns false in all others.
func serveWithWrongClock() bool {
	corefile := os.Getenv(clockCorefile)
	if corefile == "" {
		return false
	}
	golog.SetOutput(os.Stderr)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if words := strings.Fields(os.Getenv(clockRelay)); len(words) == 3 {
		settings := engine.Settings{Endpoint: words[1], Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b uws-4b", DB: words[2]}
		r, err := relay.New(relay.Config{Settings: settings, Listen: words[0], Edge: engine.Edge{FirstContact: func() time.Duration { return 0 }}})
		if err != nil {
			golog.Fatal(err)
		}
		defer r.Close()
		l, err := net.Listen("tcp", words[0])
		if err != nil {
			golog.Fatal(err)
		}
		go http.Serve(l, r)
	}
	instance, err := caddy.Start(input(corefile))
	if err != nil {
		golog.Fatal(err)
	}
	<-stop
	if err := errors.Join(errors.Join(instance.ShutdownCallbacks()...), instance.Stop()); err != nil {
		golog.Print(err)
	}
	return true
}

// wrongClock is the tracer of a process whose clock is wrong.
type wrongClock struct {
	shifts  []time.Duration // of the wall clock
	lived   atomic.Int64    // seconds by which all clocks are ahead: for the process they have passed
	begun   time.Time
	wrong   atomic.Bool // else the clock is right
	shifted atomic.Int64
	pid     int
	log     string
	done    chan struct{} // closed when the process has ended
}

// startWrong starts the process of a cell.
func (c *cell) startWrong(wrong bool) *wrongClock {
	c.t.Helper()
	k := newWrongClock(c.t, c.fault.clock)
	k.wrong.Store(wrong)
	c.w.elsewhere = testkit.FreeAddress(c.t, c.w.host)
	_, port, _ := net.SplitHostPort(c.w.elsewhere)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SAFEBROWSING_BOOT_ID=of this test") // which /proc may not tell
	if c.column == throughRelay {
		if c.relayDB == "" {
			c.relayDB = c.t.TempDir()
		}
		address := testkit.FreeAddress(c.t, c.w.host)
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s %s %s", clockRelay, address, c.box.URL, c.relayDB))
		c.w.endpoint = "http://" + address
	}
	corefile := strings.Replace(c.w.corefile(append(c.extra, "confirm_timeout 4s")...), ".:0", ".:"+port, 1)
	cmd.Env = append(cmd.Env, clockCorefile+"="+corefile)
	k.start(c.t, cmd)
	client := &dns.Client{Timeout: time.Second}
	testkit.Until(c.w.t, "an answer of the process", func() bool {
		select {
		case <-k.done:
			text, _ := os.ReadFile(k.log)
			c.t.Fatalf("The process has ended: %s", text)
		default:
		}
		_, _, err := client.Exchange(new(dns.Msg).SetQuestion("started.example.", dns.TypeA), c.w.elsewhere)
		return err == nil
	})
	return k
}

func newWrongClock(t *testing.T, shifts []time.Duration) *wrongClock {
	return &wrongClock{shifts: shifts, begun: time.Now(), log: filepath.Join(t.TempDir(), "log"), done: make(chan struct{})}
}

// start starts the process, until the end of the test.
func (k *wrongClock) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	output, err := os.Create(k.log)
	testkit.Must(t, err)
	defer output.Close()
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	cmd.Stdout, cmd.Stderr = output, output
	started := make(chan error)
	go k.trace(cmd, started)
	if err := <-started; err != nil {
		t.Skipf("Programs cannot be traced here: %v", err)
	}
	t.Cleanup(func() {
		k.stop()
		if t.Failed() {
			text, _ := os.ReadFile(k.log)
			t.Logf("The process with a wrong clock said: %s", text)
		}
	})
}

// stop ends the process and waits for it. It may be called more than once.
func (k *wrongClock) stop() {
	select {
	case <-k.done:
		return
	default:
	}
	_ = syscall.Kill(k.pid, syscall.SIGTERM)
	select {
	case <-k.done:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(k.pid, syscall.SIGKILL)
		<-k.done
	}
}

const (
	wall     = 0x40000000 // __WALL: threads too
	exitKill = 0x100000   // PTRACE_O_EXITKILL
)

// trace starts the process and traces it to its end.
func (k *wrongClock) trace(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
	defer close(k.done)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	defer cmd.Process.Release()
	k.pid = cmd.Process.Pid
	var status syscall.WaitStatus
	_, err := syscall.Wait4(k.pid, &status, wall, nil)
	if err == nil {
		err = errors.Join(hideClock(k.pid), syscall.PtraceSetOptions(k.pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill))
	}
	started <- err
	if err != nil {
		_ = syscall.Kill(k.pid, syscall.SIGKILL)
	}
	_ = syscall.PtraceSyscall(k.pid, 0)
	for {
		tid, err := syscall.Wait4(-k.pid, &status, wall, nil) // its group: this thread may have started others before
		signal := 0
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil, (status.Exited() || status.Signaled()) && tid == k.pid:
			return
		case !status.Stopped():
			continue
		case status.StopSignal() == syscall.SIGTRAP|0x80:
			k.shift(tid)
		case status.StopSignal() != syscall.SIGTRAP && status.StopSignal() != syscall.SIGSTOP:
			signal = int(status.StopSignal())
		}
		_ = syscall.PtraceSyscall(tid, signal) // an error means that the thread has ended
	}
}

// hideClock has a process that has just begun not find the vDSO, by which it would read the
// clock without a system call: see vdso(7) and getauxval(3).
func hideClock(pid int) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	const wordBytes, systemInfo, ignore = 8, 33, 1 // AT_SYSINFO_EHDR, AT_IGNORE
	var raw [wordBytes]byte
	zeros, at := 0, uintptr(regs.Rsp)+wordBytes // of the arguments
	for ; zeros < 2; at += wordBytes {          // behind them and behind the environment
		if _, err := syscall.PtracePeekData(pid, at, raw[:]); err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(raw[:]) == 0 {
			zeros++
		}
	}
	for ; ; at += 2 * wordBytes {
		if _, err := syscall.PtracePeekData(pid, at, raw[:]); err != nil {
			return err
		}
		switch binary.LittleEndian.Uint64(raw[:]) {
		case 0:
			return nil // it has no vDSO
		case systemInfo:
			binary.LittleEndian.PutUint64(raw[:], ignore)
			_, err := syscall.PtracePokeData(pid, at, raw[:])
			return err
		}
	}
}

// shift changes the answer of clock_gettime(2) at its end.
func (k *wrongClock) shift(tid int) {
	var regs syscall.PtraceRegs
	const realTime, monotonic, realTimeCoarse = 0, 1, 5
	if syscall.PtraceGetRegs(tid, &regs) != nil || regs.Orig_rax != syscall.SYS_CLOCK_GETTIME || regs.Rax != 0 {
		return // at the entry of the call Rax is -ENOSYS
	}
	shift := time.Duration(k.lived.Load()) * time.Second
	switch {
	case regs.Rdi != realTime && regs.Rdi != realTimeCoarse && regs.Rdi != monotonic:
		return
	case regs.Rdi != monotonic && k.wrong.Load():
		shift += k.shifts[int(time.Since(k.begun)/shiftEach)%len(k.shifts)]
	}
	if shift == 0 {
		return
	}
	var raw [8]byte
	if _, err := syscall.PtracePeekData(tid, uintptr(regs.Rsi), raw[:]); err != nil {
		return
	}
	seconds := binary.LittleEndian.Uint64(raw[:]) + uint64(int64(shift/time.Second))
	binary.LittleEndian.PutUint64(raw[:], seconds)
	if _, err := syscall.PtracePokeData(tid, uintptr(regs.Rsi), raw[:]); err == nil {
		k.shifted.Add(1)
	}
}

// forgiving lets a client confirm a name again. A cached answer ends when either clock says so,
// and one that jumps ahead ends all: see lookup/cache.go. All other rules hold.
type forgiving struct{ *testing.T }

// Errorf implements protocoltest.Reporter.
func (f forgiving) Errorf(format string, args ...any) {
	f.Helper()
	if text := fmt.Sprintf(format, args...); protocoltest.Excuse(text) != "the client was restarted" {
		f.T.Error(text)
	}
}

// withWrongClock runs a cell about a clock.
func (c *cell) withWrongClock() {
	k := c.startWrong(c.phase == firstLoad)
	c.useWrongClock(k)
	c.seen.peak = residentOf(k.pid, "VmHWM:")
	k.stop()
	c.afterWrongClock()
}

func (c *cell) useWrongClock(k *wrongClock) {
	defer c.askAllTheTime()()
	c.eventuallyBlocked("known.example.com.")
	k.wrong.Store(true)
	switch c.phase {
	case firstLoad:
		c.eventuallyBlocked("evil.example.com.")
	case partialUpdate:
		c.w.threaten("known.example.com/", "evil.example.com/", "new.example.com/")
		c.eventuallyNew()
	default:
		time.Sleep(2 * shiftEach)
		c.w.wantBlocked("evil.example.com.", dns.TypeA, c.w.blames("social engineering"))
	}
	c.w.wantBlocked("known.example.com.", dns.TypeA, c.w.blames("social engineering"))
	testkit.Until(c.w.t, "the process reads its clock", func() bool {
		c.w.wantPassed("other.example.com.", dns.TypeA)
		return k.shifted.Load() > 0
	})
	testkit.Until(c.w.t, "the waits of all lists are saved", func() bool {
		lists, err := updater.Status(cmp.Or(c.relayDB, c.w.db))
		return err == nil && len(lists) == 3 && !slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return l.Updated.IsZero() })
	})
}

// afterWrongClock starts the process again, with a wrong clock: the lists are in force at
// once, and the server is asked for none, whatever the clock showed when the waits were saved.
func (c *cell) afterWrongClock() {
	if c.phase == partialUpdate { // where waits are so short that they end
		return
	}
	before := len(c.w.fetches())
	c.startWrong(true)
	c.eventuallyBlocked("known.example.com.")
	if n := len(c.w.fetches()) - before; n > 0 {
		c.t.Errorf("Expected no request for lists after the start, got %d", n)
	}
	for _, db := range []string{c.w.db, c.relayDB} {
		lists, _ := updater.Status(cmp.Or(db, c.w.db))
		for _, l := range lists {
			if wait := time.Until(l.NotBefore); wait > longest {
				c.t.Errorf("Expected list %s to be requested within a day, got %s", l.Name, wait)
			}
		}
	}
}
