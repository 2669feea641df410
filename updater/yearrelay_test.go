package updater_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// TestAYearOfRelaysWithoutViolation is TestAYearWithoutViolation for two relays with a folder each, which share a
// store in memory: one of them fetches, and the other one takes over when it dies, ends, or is cut off from the
// store. To the server they are one client, so a wait that the first one was given holds for the second one.
func TestAYearOfRelaysWithoutViolation(t *testing.T) {
	testkit.Long(t)
	total := sumOfYears(t)
	for version, speaks := range versions {
		for _, seed := range seedsOfYears(max(1, *yearSeeds/8)) {
			t.Run(fmt.Sprint(version, "/", seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					y := newYear(t, speaks, dir, seed)
					y.shared = updater.NewMemoryShared()
					total.live(y)
					if y.takeovers == 0 {
						t.Error("no relay has taken over")
					}
				})
			})
		}
	}
}

// takeOver starts the other relay, which follows for some time, and ends the first one.
func (y *year) takeOver() {
	first := y.current
	y.folder, y.other = y.other, y.folder
	y.startProcess()
	time.Sleep(time.Duration(y.chance.Int64N(int64(3 * time.Minute))))
	first.stopSearching() // its clock of searches is known to the second one after a second
	switch y.chance.IntN(3) {
	case 0:
		y.kill(first)
	case 1:
		first.stop()
	case 2:
		first.view.Cut()
		time.Sleep(updater.HeldLease + time.Second) // its request, if there was one, has ended
		y.server.ClientStarted()
		time.Sleep(time.Duration(y.chance.Int64N(int64(2 * time.Minute))))
		y.kill(first)
	}
	y.server.ClientStarted() // a content that the first one did not publish is lost
	time.Sleep(updater.DeadLease + 2*time.Second)
	y.takeovers++
	y.beginSearching()
}

// kill ends a relay at once. Its folder stays as it is at this moment.
func (y *year) kill(l *life) {
	y.folders++
	copyFolder(y.t, l.dir, y.folderDir(y.folders))
	y.other = y.folders
	l.dead.Store(true)
	l.view.Cut()
	l.stop()
}
