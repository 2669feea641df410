package updater_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// restart stops the client as a service manager does, and starts it after a
// while.
func (y *year) restart(pause time.Duration) {
	y.current.stop()
	time.Sleep(pause)
	y.server.ClientStarted()
	y.start()
}

// reload starts a second client in the same folder, before the first is
// stopped: as a Corefile does whose engine settings changed.
func (y *year) reload() {
	old := y.current
	old.stopSearching()
	y.server.ClientStarted()
	y.start()
	time.Sleep(time.Duration(y.chance.Int64N(int64(5 * time.Second))))
	old.stop()
	y.server.ClientStarted()
}

// crash ends the client at once, whatever it does: nothing that it does
// afterwards reaches the disk or the server.
func (y *year) crash() {
	y.folders++
	y.folder = y.folders
	copyFolder(y.t, y.current.dir, y.folderDir(y.folder))
	y.current.dead.Store(true)
	if y.current.view != nil {
		y.current.view.cut()
	}
	y.current.stop()
	y.server.ClientStarted()
	y.start()
}

// crashLoop is a client that dies again and again soon after its start.
func (y *year) crashLoop() {
	for range y.chance.IntN(20) {
		time.Sleep(time.Duration(y.chance.Int64N(int64(3 * time.Minute))))
		y.crash()
	}
}

// setClockBack restarts the client while the wall clock of the machine is set back: it
// finds files from the future. Then the whole wait begins again. A clock that is set
// forward while no client runs is the same as time that passes.
func (y *year) setClockBack() {
	y.current.stop()
	if err := updater.SetClockBack(y.current.dir, time.Duration(y.chance.Int64N(int64(1000*time.Hour)))); err != nil {
		y.t.Fatal(err)
	}
	y.server.ClientStarted()
	y.start()
}

func (y *year) folderDir(n int) string { return filepath.Join(y.dir, fmt.Sprint(n)) }

func copyFolder(t *testing.T, from, to string) {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
