package test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func init() {
	day := 24 * time.Hour
	for name, shifts := range map[string][]time.Duration{
		"clock a day ahead": {day}, "clock a day back": {-day}, "clock jumps": {day, 0, -day, 2 * day},
	} {
		clockFaults[name] = fault{good: true, run: func(c *cell) { c.withWrongClock(shifts) }}
	}
}

// withWrongClock runs a cell in a process whose clock is ahead by each of shifts in turn: from the start, or from a blocked name on.
func (c *cell) withWrongClock(shifts []time.Duration) {
	k := c.startWrong(shifts, c.phase == firstLoad)
	c.useWrongClock(k)
	c.seen.peak = resident(k.pid)
	testkit.Between(c.t, "MiB of memory", c.seen.peak, 0, mostPeak)
	k.end()
	if c.phase != partialUpdate { // where waits are so short that they end
		c.startAgain(shifts)
	}
}

func (c *cell) startWrong(shifts []time.Duration, wrong bool) *wrongClock {
	c.t.Helper()
	k := newWrongClock(newChild(c.t, c.w), shifts...)
	k.wrong.Store(wrong)
	environment := []string{"SAFEBROWSING_BOOT_ID=of this test"} // which /proc may not tell
	if c.column == throughRelay {
		c.relayDB = cmp.Or(c.relayDB, c.t.TempDir())
		address := testkit.FreeAddress(c.t, c.w.host)
		environment = append(environment, relayVariable+"="+strings.Join([]string{address, c.box.URL, c.relayDB}, " "))
		c.w.endpoint = "http://" + address
	}
	k.configure(c.w.corefile(c.extra...))
	k.start(environment...)
	c.w.elsewhere = k.address
	return k
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
	testkit.Until(c.t, "the process reads its clock", func() bool {
		c.w.wantPassed("other.example.com.", dns.TypeA)
		return k.shifted.Load() > 0
	})
	testkit.Until(c.t, "the waits of all lists are saved", func() bool {
		lists, err := updater.Status(cmp.Or(c.relayDB, c.w.db))
		return err == nil && len(lists) == 3 && !slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return l.Updated.IsZero() })
	})
}

// startAgain starts the process once more: the lists are in force at once, and the server is asked for none, whatever the
// clock showed when the waits were saved.
func (c *cell) startAgain(shifts []time.Duration) {
	before := len(c.w.fetches())
	c.startWrong(shifts, true)
	c.eventuallyBlocked("known.example.com.")
	testkit.Equal(c.t, "requests for lists after the start", len(c.w.fetches()), before)
	for _, db := range []string{c.w.db, cmp.Or(c.relayDB, c.w.db)} {
		lists, err := updater.Status(db)
		testkit.Must(c.t, err)
		for _, l := range lists {
			testkit.Between(c.t, "the wait for list "+l.Name, max(0, time.Until(l.NotBefore)), 0, longest)
		}
	}
}

// wrongClock is a CoreDNS whose clock is wrong. Its tracer changes what the system tells it about the time: the wall
// clock is shifted, as when somebody sets the clock of a machine, and all clocks are ahead by what the process has lived
// through in no time. Timers go on as they are.
type wrongClock struct {
	*child
	shifts  []time.Duration // of the wall clock, in turn
	wrong   atomic.Bool     // else the wall clock is right
	lived   atomic.Int64    // seconds by which all clocks are ahead
	shifted atomic.Int64    // answers about the time that were changed
	begun   time.Time
	pid     int
	out     testkit.Output
	done    chan struct{} // closed when the process has ended
}

// shiftEach is how long a clock that jumps stays.
const shiftEach = 100 * time.Millisecond

func newWrongClock(c *child, shifts ...time.Duration) *wrongClock {
	return &wrongClock{child: c, shifts: shifts, begun: time.Now(), done: make(chan struct{})}
}

// start starts the process, until the end of the test, and waits for its first answer.
func (k *wrongClock) start(environment ...string) {
	k.t.Helper()
	cmd := exec.Command(os.Args[0], "-conf", k.file)
	cmd.Env = append(append(os.Environ(), childVariable+"=1", "GODEBUG=asyncpreemptoff=1"), environment...)
	cmd.Stdout, cmd.Stderr = &k.out, &k.out
	started := make(chan error)
	go k.trace(cmd, started)
	if err := <-started; err != nil {
		k.t.Skipf("Programs cannot be traced here: %v", err)
	}
	k.t.Cleanup(func() {
		k.end()
		if k.t.Failed() {
			k.t.Logf("The process with a wrong clock said: %s", k.out.String())
		}
	})
	testkit.Until(k.t, "the first answer", func() bool { return k.ended() || k.answers() })
	if k.ended() {
		k.t.Fatal("The process has ended")
	}
}

func (k *wrongClock) ended() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// end ends the process and waits for it. It may be called more than once.
func (k *wrongClock) end() {
	if k.ended() {
		return
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

// hideClock hides the vDSO from a process that has just begun, where it would read the clock without a system call: see vdso(7).
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
	shift := k.lived.Load()
	switch {
	case regs.Rdi != realTime && regs.Rdi != realTimeCoarse && regs.Rdi != monotonic:
		return
	case regs.Rdi != monotonic && k.wrong.Load():
		shift += int64(k.shifts[int(time.Since(k.begun)/shiftEach)%len(k.shifts)].Seconds())
	}
	if shift == 0 {
		return
	}
	var raw [8]byte
	if _, err := syscall.PtracePeekData(tid, uintptr(regs.Rsi), raw[:]); err != nil {
		return
	}
	binary.LittleEndian.PutUint64(raw[:], binary.LittleEndian.Uint64(raw[:])+uint64(shift))
	if _, err := syscall.PtracePokeData(tid, uintptr(regs.Rsi), raw[:]); err == nil {
		k.shifted.Add(1)
	}
}

// hurried is a CoreDNS that lives through hours in seconds, and its clients.
type hurried struct {
	*wrongClock
	since map[byte]time.Duration // what the clock was ahead when a client last asked for an ordinary name
}

const ordinary = "www.example.com."

func (h *hurried) ahead() time.Duration { return time.Duration(h.lived.Load()) * time.Second }

// pass lets time pass. What is due then begins with the next query: a system call that waits knows nothing of it.
func (h *hurried) pass(d time.Duration) { h.lived.Add(int64(d.Seconds())) }

func (h *hurried) asks(client byte, names ...string) {
	h.t.Helper()
	from := clientAt(fmt.Sprint("127.255.254.", client))
	for _, name := range names {
		_, _, err := from.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), h.address)
		testkit.Must(h.t, err)
		if name == ordinary {
			h.since[client] = h.ahead()
		}
	}
}

// Of four devices two use another resolver from different hours on. They, and no others, are told by the log, the
// door, status, the page and the metric, with their addresses; and that one of them is back.
func TestDevicesThatLeaveAreToldOverRealSockets(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	h := &hurried{newWrongClock(newChild(t, w)), make(map[byte]time.Duration)}
	page := testkit.FreeAddress(t, w.host)
	h.configure(".:0 {\n\tbind " + w.host + "\n\terrors\n\tsafebrowsing {\n\t\t" + blockList(t, "blocked.example") +
		"\n\t\tdb " + w.db + "\n\t\tlog\n\t\tstatus " + page + " names\n\t}\n\tforward . " + w.upstream + "\n}\n")
	h.start()
	const faithful, browser, first, second = 1, 2, 3, 4
	for range 45 {
		h.pass(time.Minute)
		for _, client := range []byte{faithful, browser, first, second} {
			h.asks(client, ordinary)
		}
	}
	var told []byte // who has left, as the door says
	for range 48 {
		h.pass(20 * time.Minute)
		h.asks(faithful, ordinary)
		h.asks(browser, "dns.google.", ordinary)
		h.asks(first, "dns.google.")
		if h.ahead() <= 2*time.Hour {
			h.asks(second, ordinary)
		} else {
			h.asks(second, "dns.google.")
		}
		if told = h.left(w, told); len(told) == 2 {
			break
		}
	}
	testkit.Equal(t, "the devices that are told, in this order", told, []byte{first, second})
	testkit.Until(t, "the metric", func() bool { return h.metric(`coredns_safebrowsing_devices{state="left"}`) == float64(len(told)) })
	r, shown := w.told(), get(t, "http://"+page+"/")
	var status strings.Builder
	(&truth.Printer{W: &status, Tool: "safebrowsing"}).Short(&r)
	for _, d := range r.Devices.Told {
		if d.Left {
			testkit.WantParts(t, status.String(), d.String())
			testkit.WantParts(t, shown, d.Client)
		}
	}
	testkit.Equal(t, "devices that left, and that ask for a resolver, too", [2]int{r.Devices.Left, r.Devices.Also}, [2]int{2, 1})
	testkit.Equal(t, "lines about devices that left", strings.Count(h.out.String(), "it may not be protected"), len(told))
	testkit.WantNone(t, h.out.String(), "127.255.254.1 ")
	testkit.Until(t, "the line that one is back", func() bool {
		h.pass(time.Minute)
		h.asks(first, ordinary)
		return strings.Contains(h.out.String(), "127.255.254.3, which asked for dns.google only, asks for other names again")
	})
}

// left returns who has left, in the order in which that was found: each has asked only for a resolver for three hours at least.
func (h *hurried) left(w *world, told []byte) []byte {
	h.t.Helper()
	for _, d := range w.told().Devices.Told {
		if client := net.ParseIP(d.Client).To4(); client != nil && d.Left && !slices.Contains(told, client[3]) {
			testkit.Between(h.t, "quiet for hours: "+d.String(), (h.ahead() - h.since[client[3]]).Hours(), 3, 24)
			told = append(told, client[3])
		}
	}
	return told
}
