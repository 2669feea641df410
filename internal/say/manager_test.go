package say

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// manager listens as a service manager does.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return conn
}

func TestNotifyTellsTheServiceManager(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@" + filepath.Join(t.TempDir(), "abstract")} {
		conn := manager(t, name)
		testkit.Must(t, Notify("READY=1", "STATUS=Protected"))
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != "READY=1\nSTATUS=Protected" {
			t.Errorf("%s heard %q, %v", name, got, err)
		}
	}
}

func TestNotifyDoesNothingWithoutAServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil || Managed() {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := Notify("READY=1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("A socket that is not there: %v", err)
	}
}

// Unix keeps a few messages for a manager that hangs, and then makes the sender wait.
func TestNotifyDoesNotWaitForAServiceManagerThatHangs(t *testing.T) {
	testkit.Long(t)
	manager(t, filepath.Join(t.TempDir(), "notify"))
	for range 100_000 {
		if err := Notify("READY=1"); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			return
		}
	}
	t.Error("The manager has read nothing, and takes whatever is sent")
}
