//go:build unix

package updater_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

func TestAProcessWithoutFileDescriptorsWaitsForTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("se-4b", entriesOf(1))
		server.SetMinimumWait("se-4b", 20*time.Minute)
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "se-4b"), newRun(t, server, dir, "se-4b")
		first.start()
		time.Sleep(5 * time.Minute)
		second.start()
		time.Sleep(5 * time.Second)
		var limit syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		none := limit
		none.Cur = 0
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
		time.Sleep(5 * time.Second)
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		time.Sleep(80 * time.Minute)
		if n := len(server.Requests("update")); n != 5 {
			t.Errorf("%d requests of both, want 5", n)
		}
		second.stop() // while it waits for the folder
		first.stop()
	})
}
