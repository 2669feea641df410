package updater_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// restart stops the client as a service manager does, and starts it after a
// while, in which the machine may boot.
func (y *year) restart(pause time.Duration) {
	y.current.stop()
	time.Sleep(pause)
	if y.chance.IntN(3) == 0 {
		y.reboot()
	}
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
	y.die()
	y.server.ClientStarted()
	y.start()
}

// die ends the client as crash does. The folder is what it had on the disk then.
func (y *year) die() {
	y.folders++
	y.folder = y.folders
	copyFolder(y.t, y.current.dir, y.folderDir(y.folder))
	y.current.dead.Store(true)
	if y.current.view != nil {
		y.current.view.cut()
	}
	y.current.stop()
}

// crashLoop is a client that dies again and again soon after its start.
func (y *year) crashLoop() {
	for range y.chance.IntN(20) {
		time.Sleep(time.Duration(y.chance.Int64N(int64(3 * time.Minute))))
		y.crash()
	}
}

// setClock sets the wall clock of the machine while no client runs, after a stop or a crash.
// Set back, the next client finds files from the future. Set forward, it finds files whose
// waits have ended, and only the clock since boot tells otherwise.
func (y *year) setClock() {
	if y.chance.IntN(2) == 0 {
		y.current.stop()
	} else {
		y.die()
	}
	forward := time.Duration(y.chance.Int64N(int64(2000*time.Hour))) - 1000*time.Hour
	if err := updater.SetClock(y.folderDir(y.folder), forward); err != nil {
		y.t.Fatal(err)
	}
	y.server.ClientStarted()
	y.start()
}

// reboot begins another boot of the machine. Its wall clock is right then: a clock that is set
// forward over a reboot looks like time that has passed.
func (y *year) reboot() { y.boots, y.booted = y.boots+1, time.Now() }

// boot is what the machine knows of its boot.
func (y *year) boot() (id string, since time.Duration) {
	return fmt.Sprint("boot ", y.boots), time.Since(y.booted)
}

func (y *year) folderDir(n int) string { return filepath.Join(y.dir, fmt.Sprint(n)) }

func copyFolder(t *testing.T, from, to string) {
	files, err := os.ReadDir(from)
	err = errors.Join(err, os.Mkdir(to, 0o700))
	for _, file := range files {
		raw, readErr := os.ReadFile(filepath.Join(from, file.Name()))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, file.Name()), raw, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}
