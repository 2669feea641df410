package engine

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
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

// While a relay is down for a day, however often it is tried, there is one line when it
// is left and one when it answers again; updates and confirmations have no trouble.
func TestARelayThatIsLeftIsTwoLines(t *testing.T) {
	lines := logtest.Capture(t)
	s := config.Settings{Endpoint: "http://first.internal http://second.internal", Protocol: protocol.DialectV5, Lists: "se-4b"}
	synctest.Test(t, func(t *testing.T) {
		relays := &firstDown{first: protocoltest.New(t), second: protocoltest.New(t)}
		for _, relay := range []*protocoltest.Server{relays.first, relays.second} {
			relay.OneOfMany()
			relay.SetMinimumWait("", 20*time.Minute)
			relay.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		}
		r := ForTests{NewRegistry(Edge{Transport: relays, FirstContact: func() time.Duration { return 0 }})}
		_, end, err := r.Acquire(s, "")
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
	logtest.WantParts(t, lines.Only(t, "fails"), "[WARNING]", "http://first.internal fails: ", "connection refused. http://second.internal is asked in its place; http://first.internal is tried again, not before 2000-01-0")
	logtest.WantParts(t, lines.Only(t, "answers again"), "[INFO]", "http://first.internal answers again")
	if got := lines.About("[ERROR]"); len(got) > 0 {
		t.Errorf("Expected no errors, got %q", got)
	}
}
