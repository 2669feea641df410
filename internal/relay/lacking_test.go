package relay

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestAClientInModeRealtimeHasItsListsAlthoughTheRelayCannotDoMore(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.relay.Close()
		synctest.Wait()
		c := w.replicaIn(lookup.RealTime, 1, atOnce)
		defer c.close()
		time.Sleep(time.Second)
		if n := c.entries(); n != 1 {
			t.Errorf("Expected the lists that the relay has at once, got %d entries", n)
		}
		if d := c.decide("evil.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("Expected a threat that is in a list to be confirmed, got %v", d)
		}
		testkit.WantParts(t, lines.Only(t, "Client 10.0.0.1 asks for list"), "[WARNING]", `list "gc-32b", and this relay has mw-4b, se-4b only`, "start the relay with -realtime, or write mode local there")
		testkit.WantParts(t, lines.Only(t, "refuses list gc-32b"), "[ERROR]", "start the relay with -realtime, or write mode local")
		time.Sleep(20 * time.Hour)
		lines.Only(t, "Client 10.0.0.1 asks for list") // once a day
	})
}

func TestModeNostorageBehindARelayThatCannotIsSaidByBoth(t *testing.T) {
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.relay.Close()
		synctest.Wait()
		local := w.replica(2)
		defer local.close()
		c := w.replicaIn(lookup.NoStorage, 1, atOnce)
		defer c.close()
		time.Sleep(time.Second)
		testkit.WantParts(t, lines.Only(t, "does not have list gc-32b"), "[WARNING]", "http://relay1.internal", "it confirms only what its own lists hold, and so mode nostorage blocks no more than mode local", "Start the relay with -realtime, or write mode local")
		for i := range manyUnlisted {
			local.decide(hostName(i))
		}
		if got := lines.About("are in no list"); len(got) != 0 {
			t.Errorf("A client in mode local has the relay say %q", got)
		}
		for i := range 3 * manyUnlisted {
			c.decide(fmt.Sprintf("n%d.example.", i))
			time.Sleep(time.Second)
		}
		testkit.WantParts(t, lines.Only(t, "are in no list"), "[WARNING]", "the last ones of 10.0.0.1", "without -realtime this relay confirms only what its own lists hold")
	})
}

// The names of its lists are what a doctor asks for, who is called when something is new.
func TestARelayWithoutItsFirstListsDoesNotSayThatItHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Edge.FirstContact = func() time.Duration { return 40 * time.Second }
		w.start()
		defer w.relay.Close()
		ask := func() *httptest.ResponseRecorder {
			synctest.Wait()
			answer := httptest.NewRecorder()
			w.relay.ServeHTTP(answer, httptest.NewRequest("GET", "/v5/hashLists", nil))
			return answer
		}
		if got := ask(); got.Code != 503 || !strings.Contains(got.Body.String(), "the relay has no lists yet: it fetches them within a minute of its start") {
			t.Errorf("Expected 503 before the first lists, got %d %s", got.Code, got.Body)
		}
		time.Sleep(time.Minute)
		if got := ask(); got.Code != 200 || !strings.Contains(got.Body.String(), "se-4b") {
			t.Errorf("Expected the lists, got %d %s", got.Code, got.Body)
		}
	})
}
