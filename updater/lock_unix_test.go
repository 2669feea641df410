//go:build unix

package updater_test

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestAProcessWithoutFileDescriptorsWaitsForTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, 20*time.Minute, held{"se-4b": {1}})
		dir := t.TempDir()
		first, second, third := newRun(t, server, dir, "se-4b"), newRun(t, server, dir, "se-4b"), newRun(t, server, dir, "se-4b")
		first.start()
		time.Sleep(5 * time.Minute)
		second.start()
		time.Sleep(5 * time.Second)
		var limit syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		none := limit
		none.Cur = 0
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
		third.start()
		time.Sleep(5 * time.Second)
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		time.Sleep(80 * time.Minute)
		testkit.Equal(t, "requests of all", len(server.Requests("update")), 5)
		testkit.Equal(t, "told that the folder is in use", third.times(updater.LockBusy), 1)
		third.checkHeld("after it could read", held{"se-4b": {1}})
		second.stop() // while it waits for the folder
		third.stop()
		first.stop()
	})
}

// As "sudo safebrowsing update" does, while the service is stopped.
func TestWhatRootWritesInTheFolderOfAServiceIsTheServices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can")
	}
	const service = 65534
	dir := t.TempDir()
	must(t, os.Chown(dir, service, service))
	synctest.Test(t, func(t *testing.T) {
		r := newRun(t, serverOf(t, 0, held{"se-4b": {1}}), dir, "se-4b").started()
		time.Sleep(5 * time.Minute)
		r.stop()
	})
	all, err := os.ReadDir(dir)
	must(t, err)
	testkit.Between(t, "files", len(all), 3, 10)
	for _, f := range all {
		info, err := f.Info()
		must(t, err)
		testkit.Equal(t, f.Name()+" belongs to user", info.Sys().(*syscall.Stat_t).Uid, service)
	}
}
