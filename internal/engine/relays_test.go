package engine

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// firstDown is a transport whose first relay may be down.
type firstDown struct {
	down          atomic.Bool
	first, second *protocoltest.Server
}

func (f *firstDown) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "second.internal" {
		return f.second.RoundTrip(r)
	}
	if f.down.Load() {
		return nil, errors.New("connection refused")
	}
	return f.first.RoundTrip(r)
}

// relaySettings are those of an engine with the two relays.
var relaySettings = Settings{Endpoint: "http://first.internal http://second.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}

// startTwoRelays returns two relays with one list, and a registry that asks them at once.
func startTwoRelays(t *testing.T) (*firstDown, ForTests) {
	relays := &firstDown{first: protocoltest.New(t), second: protocoltest.New(t)}
	for _, relay := range []*protocoltest.Server{relays.first, relays.second} {
		relay.OneOfMany()
		relay.SetMinimumWait("", 20*time.Minute)
		relay.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
	}
	return relays, ForTests{NewRegistry(Edge{Transport: relays, FirstContact: func() time.Duration { return 0 }})}
}

// While a relay is down for a day, however often it is tried, there is one line when it
// is left and one when it answers again; updates and confirmations have no trouble.
func TestARelayThatIsLeftIsTwoLines(t *testing.T) {
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		relays, r := startTwoRelays(t)
		_, end, err := r.Acquire(relaySettings, "")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		time.Sleep(time.Hour)
		relays.down.Store(true)
		time.Sleep(24 * time.Hour)
		if n := len(relays.second.Requests("update")); n < 70 {
			t.Errorf("%d updates by the second relay in a day", n)
		}
		relays.down.Store(false)
		time.Sleep(25 * time.Hour)
	})
	testkit.WantParts(t, lines.Only(t, "fails"), "[WARNING]", "http://first.internal fails: ", "connection refused. http://second.internal is asked in its place; http://first.internal is tried again, not before 2000-01-0")
	testkit.WantParts(t, lines.Only(t, "answers again"), "[INFO]", "http://first.internal answers again")
	if got := lines.About("[ERROR]"); len(got) > 0 {
		t.Errorf("Expected no errors, got %q", got)
	}
}

// One gauge for each relay says which of them fails. A reload makes an engine with the same
// labels, which may not have seen what the one before has.
func TestTheGaugeSaysWhichRelayFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relays, r := startTwoRelays(t)
		want := func(when string, first, second float64) {
			t.Helper()
			for url, up := range map[string]float64{"http://first.internal": first, "http://second.internal": second} {
				if got := testkit.Metric(t, "endpoint_up", "url", url); got != up {
					t.Errorf("%s: endpoint_up of %s is %v, want %v", when, url, got, up)
				}
			}
		}
		before, end, err := r.Acquire(relaySettings, "")
		if err != nil {
			t.Fatal(err)
		}
		want("at the start", 1, 1)
		relays.down.Store(true)
		time.Sleep(time.Hour)
		want("the first one is down", 0, 1)
		relays.down.Store(false)
		time.Sleep(3 * time.Hour)
		want("it is back", 1, 1)
		other := relaySettings
		other.Cache = 7
		_, endOther, err := r.Acquire(other, "")
		if err != nil {
			t.Fatal(err)
		}
		before.reporter.endpointChanged(protocol.EndpointEvent{Endpoint: "http://first.internal", Err: errors.New("connection refused")})
		want("the engine that ends has seen a failure", 0, 1)
		end()
		want("the engine that continues has not", 1, 1)
		endOther()
		want("both have ended", 0, 0) // there is no gauge
		relays.second.ClientLostState()
		single := relaySettings
		single.Endpoint = "http://second.internal"
		_, end, err = r.Acquire(single, "")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		want("a single endpoint has no gauge", 0, 0)
	})
}
