//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// systemd-resolved is a user of its own: a folder that setup makes can be read, whatever the umask is.
func TestSetupWritesWhatSystemdResolvedCanRead(t *testing.T) {
	i := newInstalled(t, at("systemd-resolve", "systemd-resolved.service", "127.0.0.53"))
	testkit.Must(t, os.MkdirAll(filepath.Join(i.root, "etc/systemd"), 0o755))
	flags := flagsWith(t, "-serve", "machine")
	defer syscall.Umask(syscall.Umask(0o077))
	i.done("", flags...)
	info, err := os.Stat(filepath.Join(i.root, filepath.Dir(resolvedFile("").path)))
	testkit.Must(t, err)
	expect(t, "mode", info.Mode().Perm(), 0o755)
}

// A terminal that is gone ends a command as Ctrl-C does, and setup takes back what it has done; not by nohup.
func TestATerminalThatIsGoneInterrupts(t *testing.T) {
	gone := make(chan os.Signal, 1) // else a test that runs by nohup hands it on as ignored
	signal.Notify(gone, syscall.SIGHUP)
	defer signal.Stop(gone)
	asked := make(chan bool, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- true
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	program, err := os.Executable()
	testkit.Must(t, err)
	here := filepath.Join(t.TempDir(), "safebrowsing") // see TestMain
	testkit.Must(t, os.Symlink(program, here))
	for _, words := range [][]string{{here}, {testkit.Program(t, "nohup"), here}} {
		p := testkit.StartWith(t, []string{"SAFEBROWSING_API_KEY=" + testkit.Key}, words[0], append(words[1:], "doctor", "-endpoint", s.URL)...)
		<-asked
		p.Signal(syscall.SIGHUP)
		if len(words) == 1 {
			p.Wait()
		} else {
			time.Sleep(200 * time.Millisecond)
		}
		expect(t, p.Output(), strings.Contains(p.Output(), "context canceled"), len(words) == 1)
	}
}
