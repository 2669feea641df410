package engine

import (
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The page says which of several processes with one folder fetches, and which lists are in
// force.
func TestServiceTellsWhoFetchesAndWhatIsInForce(t *testing.T) {
	testkit.Capture(t)
	s := Settings{Endpoint: "http://service.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b uws-4b", DB: "/db"}
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := s.Client("", new(lookup.Database), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newReporter(s, func() {})
	r.schedule = schedule
	e := &Engine{Service: Service{settings: s, client: client, Schedule: schedule, standing: r.standing}, reporter: r}
	now := time.Now()
	r.report(updater.Event{Kind: updater.Loaded, List: "se-4b", Entries: 7, Updated: now, Due: now.Add(time.Hour)})
	r.report(updater.Event{Kind: updater.Loaded, List: "mw-4b", Updated: now}) // empty, and in force
	for _, step := range []struct {
		kind    updater.Kind
		follows bool
	}{{updater.LockBusy, true}, {updater.Started, false}} {
		r.report(updater.Event{Kind: step.kind})
		got := e.Standing(time.Now())
		if got.Follows != step.follows || got.Title != "Safe Browsing v5" || got.Folder != "/db" {
			t.Errorf("%v: Expected follows %v, got %+v", step.kind, step.follows, got)
		}
		if l := got.Lists; len(l) != 3 || l[0].Entries != 7 || l[0].Missing() || l[1].Missing() || !l[2].Missing() || !l[0].NotBefore.After(now) {
			t.Errorf("Expected two lists in force and one that is missing, got %+v", l)
		}
	}
}
