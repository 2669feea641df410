package engine

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// wire is a transport to a server, which can be cut.
type wire struct {
	server http.RoundTripper
	cut    atomic.Bool
}

var errCut = errors.New("network is unreachable")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		httptrace.ContextClientTrace(r.Context()).GetConn(r.URL.Host)
		return nil, errCut
	}
	return w.server.RoundTrip(r)
}

func (w *wire) Reach(context.Context, *url.URL) error {
	if w.cut.Load() {
		return errCut
	}
	return nil
}

// Without a network the log says that nothing protects, once, and the lists are there soon after
// the network.
func TestAServerWithoutANetworkSaysThatNothingProtects(t *testing.T) {
	s := Settings{Endpoint: "http://away.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		google := protocoltest.New(t)
		google.SetMinimumWait("", 30*time.Minute)
		google.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		w := &wire{server: google}
		w.cut.Store(true)
		e, err := newEngine(s, "key", Edge{Transport: w, FirstContact: func() time.Duration { return 0 }}, past{ledgers: make(ledgers)}, func() {})
		if err != nil {
			t.Fatal(err)
		}
		e.start("key")
		defer e.stop()
		time.Sleep(2*time.Hour + time.Second)
		line := lines.Only(t, "Cannot update lists")
		testkit.WantParts(t, line, "[ERROR]", "se-4b", "network is unreachable", "NO list is in force: Safe Browsing blocks nothing until the first update, which comes soon after the server can be reached", "Next try not before")
		if strings.Contains(line, "stay in force") {
			t.Error(line)
		}
		w.cut.Store(false)
		time.Sleep(16 * time.Second)
		lines.Only(t, "List se-4b now has 1 entry")
		lines.Only(t, "Lists are updated again")
		// With a list it stays, and the next line says so.
		w.cut.Store(true)
		time.Sleep(31 * time.Minute)
		if got := lines.About("Cannot update lists"); len(got) != 2 || !strings.Contains(got[1], "The lists in force stay in force. Next try not before") {
			t.Errorf("%q", got)
		}
	})
}

// After status 403 the line says when an API that has just been enabled is tried.
func TestARefusedKeyIsToldWhenTheNextTryIs(t *testing.T) {
	s := Settings{Endpoint: "http://disabled.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		google := protocoltest.New(t)
		google.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		google.Break("update", 1, protocoltest.Fault{Status: 403})
		e, end := life(t, s, google, 0)
		defer end()
		until := e.FetchHold().Until
		testkit.WantParts(t, lines.Only(t, "Cannot update lists"), "NO list is in force", "Check the API key, and that the Safe Browsing API is enabled for it; a new one is tried within a minute",
			"If you have just enabled the API: the next try is at "+say.Time(until)+", in ")
	})
}
