package relay

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A relay tells why it asked its server, what that costs, and which prefixes cost most. It knows no
// names.
func TestARelayTellsWhatItCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		expressions := hosts(12)
		w.suspect(expressions...)
		w.google.SetNegativeCacheDuration(5 * time.Minute)
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		now := time.Now()
		time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, 9, 0, 0, 0, time.Local))) // no midnight comes
		w.start()
		began := time.Now()
		time.Sleep(2 * time.Minute)
		for i, e := range expressions { // the first one costs most
			for range 12 - i {
				w.ttlAt(e)
				time.Sleep(6 * time.Minute)
			}
		}
		var c Costs
		testkit.Must(t, json.Unmarshal(ask(t, w.relay.admin(), "GET", "/costs").Body.Bytes(), &c))
		const searches = 12 * 13 / 2
		if c.Searches != searches || c.Reasons["new"] != 12 || c.Reasons["popular"] != searches-12 || !c.Since.Equal(began) {
			t.Errorf("%+v, want %d searches, 12 of them new", c, searches)
		}
		if want := searches * 0.05; math.Abs(c.Dollars-want) > 1e-9 || math.Abs(c.Month-want*float64(month)/float64(time.Since(began))) > 1e-6 {
			t.Errorf("%v US-$, %v a month", c.Dollars, c.Month)
		}
		if len(c.Today) != 10 || c.Today[0] != (Dear{fmt.Sprintf("%x", prefixOf(expressions[0], 4)), 12}) || c.Today[9].Searches != 3 {
			t.Errorf("today %+v", c.Today)
		}
		said, most := c.Text(time.Now())
		if !strings.HasPrefix(said, "78 searches (12 new, 0 expired, 66 popular) since the start, 7h50m0s ago: 3.90 US-$, at this rate ") || !strings.Contains(most, c.Today[0].Prefix+" 12 (0.60 US-$), ") {
			t.Errorf("%s\n%s", said, most)
		}
	})
}

// A relay whose server is free, or is a relay, counts and names no money.
func TestARelayWhoseSearchesCostNothingNamesNoMoney(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		if _, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now()); most != "" {
			t.Errorf("before the first search: %s", most)
		}
		w.ttlAt("evil.example/")
		said, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now())
		if strings.Contains(said+most, "US-$") || !strings.HasPrefix(said, "1 search (1 new, ") {
			t.Errorf("%s\n%s", said, most)
		}
	})
}
