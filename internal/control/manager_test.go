package control

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// serviceManager listens where NOTIFY_SOCKET says. hears fails unless the next message is text.
func serviceManager(t *testing.T) (hears func(text string)) {
	t.Helper()
	path := os.Getenv("NOTIFY_SOCKET")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return func(text string) {
		t.Helper()
		buffer := make([]byte, 1000)
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != text {
			t.Fatalf("The service manager heard %q, %v; expected %q", got, err, text)
		}
	}
}

// telling tells until the result is called, which waits for the end.
func telling(t *testing.T, report func() status.Report) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tell(ctx, report, time.Millisecond)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func TestTheServiceManagerIsToldHeadlines(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "notify"))
	hears := serviceManager(t)
	var headline atomic.Value
	headline.Store("NOT protected")
	reported, held := make(chan struct{}), make(chan struct{})
	end := telling(t, func() status.Report {
		select {
		case <-reported:
		default:
			close(reported)
		}
		<-held
		return status.Report{Headline: headline.Load().(string)}
	})
	hears("READY=1") // although no report is there yet
	<-reported
	close(held)
	hears("READY=1\nSTATUS=NOT protected")
	headline.Store("Protected by Safe Browsing")
	hears("READY=1\nSTATUS=Protected by Safe Browsing") // and in between nothing, though it was looked at often
	end()
	TellManagerEnd()
	hears("STOPPING=1")
}

func TestAServiceManagerThatComesLateIsToldAllTheSame(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "notify"))
	logged := testkit.Capture(t)
	end := telling(t, func() status.Report { return status.Report{Headline: "Protected"} })
	testkit.Until(t, "the warning", func() bool { return len(logged.About("cannot be told that CoreDNS serves")) > 0 })
	hears := serviceManager(t)
	hears("READY=1\nSTATUS=Protected")
	end()
	TellManagerEnd()
	hears("STOPPING=1")
}
