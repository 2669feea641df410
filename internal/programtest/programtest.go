// Package programtest builds the programs of this module and runs them as processes, for
// tests.
package programtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Build builds programs, the folders below cmd, into dir. It returns their paths by name.
func Build(dir string, names ...string) (map[string]string, error) {
	return BuildWith(dir, nil, names...)
}

// BuildWith is Build with more files, which the module has not: their content by their path in it.
func BuildWith(dir string, more map[string]string, names ...string) (map[string]string, error) {
	root, err := noteSources()
	if err != nil {
		return nil, err
	}
	overlay, err := overlayOf(dir, root, more)
	if err != nil {
		return nil, err
	}
	built := make(map[string]string)
	args := []string{"build", "-overlay", overlay, "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		built[name] = filepath.Join(dir, name)
		args = append(args, "github.com/coredns-safebrowsing/safebrowsing/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", strings.Join(names, " and "), err, out)
	}
	return built, nil
}

// overlayOf writes files for -overlay, see go help build, and returns the path of the list.
func overlayOf(dir, root string, more map[string]string) (string, error) {
	overlay := filepath.Join(dir, "overlay")
	if err := os.MkdirAll(overlay, 0o700); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for path, content := range more {
		file := filepath.Join(overlay, filepath.Base(path))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(path))] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(overlay, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// noteSources has this process look at all files of the module. go test caches the result of
// a test until a file changes that the test has looked at, and does not see which files
// go build reads. It returns the folder of the module.
func noteSources() (root string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the sources: %w", err)
	}
	root = strings.TrimSpace(string(out))
	return root, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
}

// Ports that FreeAddress may return. Linux gives the ports from 32768 on to outgoing
// connections (ip_local_port_range), which other tests make all the time.
const firstPort, lastPort = 10000, 32767

// given has the addresses that this process has been given.
var given sync.Map // of string to nothing

// claims has the sockets of claim: one that nothing refers to would be closed.
var claims sync.Map // of string to net.Listener

// FreeAddress returns an address of a host that nothing listens on, for TCP and UDP. It does
// so once for each address, on Linux also if other test processes ask.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	for range 1000 {
		address := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		if _, known := given.LoadOrStore(address, nil); !known && claim(address) && free(address) {
			return address
		}
	}
	t.Fatalf("no port of %s is free", host)
	return ""
}

// claim keeps an address from other test processes until this one ends. It listens on an abstract
// socket of its name, see unix(7): packages are tested side by side, and a program under test
// binds its port only a while after the address was returned. It comes before free, whose look at
// an address is a listener, too.
func claim(address string) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	l, err := net.Listen("unix", "@safebrowsing-test-"+address)
	if err != nil {
		return false
	}
	claims.Store(address, l)
	return true
}

func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	u.Close()
	return true
}

// FreePort returns the port of a FreeAddress of 127.0.0.1.
func FreePort(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(FreeAddress(t, "127.0.0.1"))
	return port
}

// Run runs a command to its end. It returns the exit status and what the command wrote.
func Run(t testing.TB, program string, args ...string) (status int, out string) {
	t.Helper()
	raw, err := exec.Command(program, args...).CombinedOutput()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		status = exit.ExitCode()
	}
	return status, string(raw)
}

// Process is a running program. It is safe for concurrent use.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	out Output
}

// Start starts a program. It is killed when the test ends, if it still runs.
func Start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return StartWith(t, nil, program, args...)
}

// StartWith is Start with more environment, as "NAME=VALUE".
func StartWith(t testing.TB, environment []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = append(os.Environ(), environment...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the status of a process that a signal ends means nothing here
	}()
	t.Cleanup(p.Kill)
	return p
}

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.out.String() }

// Pid returns the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Line waits for a line with this text and returns it. The test fails without such a line.
func (p *Process) Line(text string, timeout time.Duration) string {
	p.t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, text) {
				return line
			}
		}
	}
	p.t.Fatalf("no line says %q within %s:\n%s", text, timeout, p.Output())
	return ""
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %s: %v", s, err)
	}
}

// Stop has the process end with os.Interrupt and waits for that.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(os.Interrupt)
	p.Wait()
}

// Wait waits until the process has ended.
func (p *Process) Wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.t.Errorf("the process has not ended 20 seconds after the signal:\n%s", p.Output())
		p.Kill()
	}
}

// Kill ends the process at once and waits for it. It may have ended before.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error says that it has ended
	<-p.done
}
