package updater_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// batchers are the clients that ask for several lists in one request, by the version.
var batchers = map[string]func(protocol.Config) (protocol.Client, error){
	"v5": func(cfg protocol.Config) (protocol.Client, error) { return protocol.NewV5(cfg) },
}

// inEachVersion runs a test for each version on a server of se-4b and mw-4b. Start starts an updater of these and pha-4b with a disk.
func inEachVersion(t *testing.T, test func(t *testing.T, server *protocoltest.Server, start func() *run)) {
	for version, client := range batchers {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				server := serverOf(t, time.Hour, held{"se-4b": {1}, "mw-4b": {2}})
				test(t, server, func() *run {
					c, err := client(protocol.Config{UserAgent: "run/1", Transport: server})
					must(t, err)
					return newRunOf(t, c, openStore(t, dir, updater.Origin{Name: "test"}), "se-4b", "pha-4b", "mw-4b").started()
				})
			})
		})
	}
}

// asked returns what each request was for since the nth.
func asked(server *protocoltest.Server, n int) []string {
	return mapped(server.Requests("update")[n:], func(r protocoltest.Request) string { return fmt.Sprint(r.Lists) })
}

// Where the minimum wait is for all lists, one list alone is fetched each hour at first.
const settled = 6 * time.Hour

func TestAListThatTheServerDoesNotHaveTakesNoOtherDown(t *testing.T) {
	inEachVersion(t, func(t *testing.T, server *protocoltest.Server, start func() *run) {
		r := start()
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, "asked for", asked(server, 0), []string{"[se-4b pha-4b mw-4b]"})
		r.checkHeld("refused in a batch", held{"se-4b": nil})
		time.Sleep(14*time.Minute - time.Second)
		testkit.Equal(t, "asked for in the back-off", asked(server, 1), nil)
		time.Sleep(settled)
		r.checkHeld("by itself", held{"se-4b": {1}, "mw-4b": {2}, "pha-4b": nil})
		refused := r.reported(updater.ListRefused)
		if len(refused) == 0 {
			t.Fatal("it is not told which list is refused")
		}
		for i, e := range refused {
			backoff := 15 * time.Minute << i
			status, ok := errors.AsType[*updater.StatusError](e.Err)
			if e.List != "pha-4b" || !ok || status.Code != http.StatusBadRequest || e.Due.Before(time.Now()) && i == len(refused)-1 {
				t.Errorf("refusal %d: %+v", i, e)
			}
			if i > 0 {
				testkit.Between(t, fmt.Sprintf("refusal %d: due after the one before by", i), e.Due.Sub(refused[i-1].Due), backoff, 48*time.Hour)
			}
		}
		r.stop()

		n := len(asked(server, 0))
		server.ClientStarted()
		server.Publish("se-4b", entriesOf(1, 3))
		server.Publish("mw-4b", entriesOf(2, 4))
		r = start()
		defer r.stop()
		time.Sleep(2 * time.Hour)
		r.checkHeld("after a restart", held{"se-4b": {1, 3}, "mw-4b": {2, 4}})
		if got := asked(server, n); slices.Contains(got, "[se-4b pha-4b mw-4b]") || !slices.Contains(got, "[se-4b mw-4b]") {
			t.Errorf("after a restart asked for %q, want the good ones together and never all", got)
		}

		server.Publish("pha-4b", entriesOf(5))
		time.Sleep(48 * time.Hour)
		r.checkHeld("the server has it", held{"pha-4b": {5}})
		// In version 5 lists are due at times of their own.
		if got := asked(server, n); server.Requests("update")[0].Method != "batchGet" && got[len(got)-1] != "[se-4b pha-4b mw-4b]" {
			t.Errorf("when the server has it: %q, want it among the others again", got[len(got)-3:])
		}
	})
}

// A relay may lack a list that its clients have, such as the list of likely safe hosts.
func TestAListThatTheOperatorsServerDoesNotHaveDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := serverOf(t, time.Hour, held{"se-4b": {1}, "mw-4b": {2}})
		server.ActAsRelay()
		c, err := protocol.NewV5(protocol.Config{Endpoint: "http://relay.example", UserAgent: "run/1", Transport: server})
		must(t, err)
		r := newRunOf(t, c, nil, "se-4b", "gc-32b", "mw-4b").started()
		defer r.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		r.checkHeld("in the first minute", held{"se-4b": {1}, "mw-4b": {2}})
		testkit.Equal(t, "asked for", asked(server, 0), []string{"[se-4b gc-32b mw-4b]", "[se-4b]", "[gc-32b]", "[mw-4b]"})
		testkit.Equal(t, "refused", r.only(updater.ListRefused).List, "gc-32b") // which the server does not have
		testkit.WantError(t, r.only(updater.BatchRefused).Err)
		time.Sleep(14*time.Minute - time.Second)
		testkit.Equal(t, "asked for in the back-off of the list", asked(server, 4), nil)
		server.Publish("mw-4b", entriesOf(2, 3))
		time.Sleep(3 * time.Hour)
		r.checkHeld("later", held{"mw-4b": {2, 3}})
	})
}

func TestListsAreUpdatedFromAServerThatRefusesBatches(t *testing.T) {
	testkit.Long(t)
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			inEachVersion(t, func(t *testing.T, server *protocoltest.Server, start func() *run) {
				server.Publish("pha-4b", entriesOf(3))
				server.Break("update", 10_000, protocoltest.Fault{Status: status, Batch: true})
				r := start()
				defer r.stop()
				for day := range 10 {
					time.Sleep(24 * time.Hour)
					for i, list := range []string{"se-4b", "mw-4b", "pha-4b"} {
						r.checkHeld("a day later", held{list: []byte{byte(i + 1), byte(10 * day)}[:min(1+day, 2)]})
						server.Publish(list, entriesOf(byte(i+1), byte(10*(day+1))))
					}
				}
				testkit.Equal(t, "lists that are refused by themselves", r.times(updater.ListRefused), 0)
			})
		})
	}
}

// A failure that says nothing of the list ends the round, but a list that always fails does not keep the others back for ever.
func TestAListThatFailsEveryRequestDoesNotStarveTheOthers(t *testing.T) {
	testkit.Long(t)
	inEachVersion(t, func(t *testing.T, server *protocoltest.Server, start func() *run) {
		server.Publish("pha-4b", entriesOf(3))
		server.Break("update", 1, protocoltest.Fault{Status: http.StatusBadRequest, Batch: true})
		server.Break("update", 10_000, protocoltest.Fault{Status: http.StatusServiceUnavailable, List: "pha-4b"})
		r := start()
		defer r.stop()
		time.Sleep(24 * time.Hour)
		for day := range byte(5) {
			r.checkHeld("a day later", held{"pha-4b": nil, "se-4b": {1}})
			server.Publish("mw-4b", entriesOf(2, 100+day))
			time.Sleep(24 * time.Hour)
			r.checkHeld("a day later", held{"mw-4b": {2, 100 + day}})
		}
	})
}

// Of lists that are asked for one after the other each waits as it is told to.
func TestAMinimumWaitAboveADayIsObeyedAndTold(t *testing.T) {
	testkit.Long(t)
	inEachVersion(t, func(t *testing.T, server *protocoltest.Server, start func() *run) {
		server.Publish("pha-4b", entriesOf(3))
		all := []string{"se-4b", "pha-4b", "mw-4b"}
		setWaits := func(wait time.Duration) {
			for _, list := range all {
				server.SetMinimumWait(list, wait)
			}
		}
		setWaits(24 * time.Hour)
		r := start()
		defer r.stop()
		time.Sleep(25 * time.Hour)
		testkit.Equal(t, "told of a day, which is not too long", r.times(updater.LongWait), 0)
		const long = 40 * 24 * time.Hour
		setWaits(long)
		time.Sleep(24 * time.Hour)
		n := len(asked(server, 0))
		lists := mapped(r.reported(updater.LongWait), func(e updater.Event) string {
			testkit.Equal(t, "the wait that is told", e.Wait, long)
			testkit.Between(t, "due in", time.Until(e.Due), long-25*time.Hour, long)
			return e.List
		})
		testkit.Equal(t, "told of, at once or one by one", strings.Join(lists, ", "), strings.Join(all, ", "))
		time.Sleep(long - 26*time.Hour)
		testkit.Equal(t, "requests until the end of the wait", len(asked(server, 0)), n)
		time.Sleep(26 * time.Hour)
		testkit.Between(t, "requests after the wait", len(asked(server, 0)), n+1, n+10)
	})
}
