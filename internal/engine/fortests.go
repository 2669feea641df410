package engine

import (
	"maps"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// ForTests is a registry with what only tests may ask of it. It is in no program, which
// TestImportsPointOneWay holds.
type ForTests struct{ *Registry }

// ServiceForTests returns a service that decides by a checker alone, and has no lists to tell of.
func ServiceForTests(c *lookup.Checker) *Service {
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		panic(err)
	}
	none := func() ([]updater.ListStatus, bool, string) { return nil, false, "" }
	return &Service{Checker: c, Schedule: schedule, settings: Settings{Protocol: protocol.DialectV5.Name}, standing: none}
}

// Count returns how many engines there are, and how many holds on them.
func (r ForTests) Count() (engines, holders int) {
	r.work.Lock()
	defer r.work.Unlock()
	for _, e := range r.engines {
		holders += e.holders
	}
	return len(r.engines), holders
}

// Find returns the engine that asks the server at an endpoint, or at several joined by a
// space, or nil.
func (r ForTests) Find(endpoint string) *Engine {
	r.work.Lock()
	defer r.work.Unlock()
	for s, e := range r.engines {
		if s.Endpoint == endpoint {
			return e.Engine
		}
	}
	return nil
}

// Forget forgets the schedules and the ledgers of the server at an address, as the end of
// the process does.
func (r ForTests) Forget(address string) {
	r.work.Lock()
	defer r.work.Unlock()
	maps.DeleteFunc(r.past.schedules, func(id Identity, _ *updater.Schedule) bool { return Overlap(id.Address, address) })
	maps.DeleteFunc(r.past.ledgers, func(id Identity, _ *updater.Ledger) bool { return Overlap(id.Address, address) })
}

// SetFirstContact makes f draw the first contact of later engines, see
// updater.Config, and returns what drew it before.
func (r ForTests) SetFirstContact(f func() time.Duration) (before func() time.Duration) {
	r.work.Lock()
	defer r.work.Unlock()
	before, r.edge.FirstContact = r.edge.FirstContact, f
	return before
}
