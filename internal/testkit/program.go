package testkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// Build builds programs, the folders below cmd, into dir. It returns their paths by name.
func Build(dir string, names ...string) (map[string]string, error) {
	return BuildWith(dir, nil, names...)
}

// BuildWith is Build with more files, which the module has not: their content by their path in it.
// Programs are linked once for all tests, and once more when a source has changed.
func BuildWith(dir string, more map[string]string, names ...string) (map[string]string, error) {
	root, err := noteSources()
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("safebrowsing-programs-%d", os.Getuid()))
	if len(more) > 0 {
		kept += "-with" // or each would have to be linked again after the other
	}
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(kept, "lock"))
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	defer lock.Unlock()
	overlay, err := overlayOf(kept, root, more)
	if err != nil {
		return nil, err
	}
	args := []string{"build", "-overlay", overlay, "-o", kept + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "github.com/coredns-safebrowsing/safebrowsing/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", strings.Join(names, " and "), err, out)
	}
	return linked(kept, dir, names)
}

// linked gives programs a second name: go build removes the first one before it writes another
// program. It returns their paths by name.
func linked(from, to string, names []string) (map[string]string, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return nil, err
	}
	paths := make(map[string]string)
	for _, name := range names {
		paths[name] = filepath.Join(to, name)
		if err := os.Link(filepath.Join(from, name), paths[name]); err != nil {
			return nil, err
		}
	}
	return paths, nil
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

// noteSources looks at all files of the module. go test caches the result of
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
	Must(t, p.cmd.Start())
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

// Stop sends os.Interrupt and waits for the end of the process.
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

// Output keeps what a program writes, for a test that reads it while the program runs. The zero
// value is ready to use. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Body returns what a URL is answered with.
func Body(t testing.TB, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	Must(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	Must(t, err)
	return string(body)
}

// WantOK waits until a URL is answered with status 200, for ten seconds at least.
func WantOK(t testing.TB, url string) {
	t.Helper()
	status := 0
	for range 2000 {
		answer, err := http.Get(url)
		Must(t, err)
		answer.Body.Close()
		if status = answer.StatusCode; status == http.StatusOK {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s has status %d", url, status)
}

// ticksPerSecond is the unit of times in /proc on Linux (proc_pid_stat(5), USER_HZ).
const ticksPerSecond = 100

// CPUSeconds returns the processor time of a process. It skips the test on systems that do not tell.
func CPUSeconds(t testing.TB, pid int) (seconds float64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may have spaces
	fields := strings.Fields(rest)
	for _, i := range []int{14 - 3, 15 - 3} { // utime and stime; rest begins with field 3
		ticks, err := strconv.Atoi(fields[i])
		Must(t, err)
		seconds += float64(ticks) / ticksPerSecond
	}
	return seconds
}
