package updater_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// Whoever follows another process looks names up in joined lists, as that one does: each list apart
// costs a look-up of its own.
func TestAFollowerJoinsTheListsThatItTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		for _, list := range []string{"mw-4b", "se-4b"} {
			server.Publish(list, entriesOf(1, 2))
			server.SetMinimumWait(list, 20*time.Minute)
		}
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "mw-4b", "se-4b"), newRun(t, server, dir, "mw-4b", "se-4b")
		first.start()
		time.Sleep(time.Second / 2)
		second.start()
		time.Sleep(5 * time.Minute)
		second.checkHeld("the lists of the other one", "mw-4b", 1, 2)
		if second.database.Join() {
			t.Error("a follower has left its lists apart")
		}
		server.Publish("se-4b", entriesOf(3)) // only one of them
		time.Sleep(30 * time.Minute)
		second.checkHeld("an update of the other one", "se-4b", 3)
		second.checkHeld("the list that has not changed", "mw-4b", 1, 2)
		if second.database.Join() {
			t.Error("after an update a follower has left its lists apart")
		}
		first.stop()
		server.ClientStarted()
		time.Sleep(5 * time.Second)
		if second.database.Join() {
			t.Error("who takes over has left its lists apart")
		}
		second.stop()
		third := newRun(t, server, dir, "mw-4b", "se-4b")
		if !third.updater.Load() || !third.database.Join() {
			t.Error("Load leaves no lists apart: this test shows nothing")
		}
	})
}

// A follower may look while the other process has saved the first lists of a round only. It has the rest
// at one of its next looks, and each list is whole.
func TestAFollowerThatLooksInTheMiddleOfARoundGetsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.Publish("mw-4b", entriesOf(1))
		server.Publish("se-4b", entriesOf(1))
		server.SetMinimumWait("mw-4b", 20*time.Minute)
		server.SetMinimumWait("se-4b", 25*time.Minute) // the lists are asked for in rounds of their own
		dir := t.TempDir()
		first, second := newRun(t, server, dir, "mw-4b", "se-4b"), newRun(t, server, dir, "mw-4b", "se-4b")
		first.start()
		time.Sleep(time.Second / 2)
		second.start()
		time.Sleep(5 * time.Minute)
		server.Publish("mw-4b", entriesOf(2))
		server.Publish("se-4b", entriesOf(2))
		time.Sleep(18 * time.Minute)
		second.checkHeld("the list that is due first", "mw-4b", 2)
		second.checkHeld("the list that is due later", "se-4b", 1)
		time.Sleep(5 * time.Minute)
		second.checkHeld("the list that was due later", "se-4b", 2)
		first.stop()
		server.ClientStarted()
		second.stop()
	})
}
