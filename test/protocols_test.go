package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// move is a move from one protocol to another one.
type move struct {
	from, to *protocol.Dialect
	restart  bool // else by a reload
	memory   bool // db is off
	otherKey bool
}

func (m move) String() string {
	way, db, key := "reload", "db", "same key"
	if m.restart {
		way = "restart"
	}
	if m.memory {
		db = "db off"
	}
	if m.otherKey {
		key = "other key"
	}
	return fmt.Sprintf("%s to %s, %s, %s, %s", m.from, m.to, way, db, key)
}

// moves returns all moves that lists can survive: with db off they end with the process.
func moves() (all []move) {
	for _, from := range protocol.Dialects() {
		for _, to := range protocol.Dialects() {
			for _, m := range []move{{}, {memory: true}, {restart: true}} {
				m.from, m.to = from, to
				if from != to {
					all = append(all, m)
					m.otherKey = true
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// begin has the first protocol's lists in force.
func (m move) begin(t *testing.T) *world {
	if m.otherKey && !m.restart && !m.memory {
		testkit.Long(t)
	}
	w := newWorld(t)
	if m.memory {
		w.db = "off"
	}
	w.protocol = m.from
	w.google.SetKey("ONE")
	w.threaten("evil.example.com/")
	w.start(w.corefile("api_key ONE"))
	w.updated(w.perUpdate(3))
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	return w
}

// make moves to the other protocol.
func (m move) make(t *testing.T, w *world) {
	t.Helper()
	key := "ONE"
	if m.otherKey {
		key = "TWO"
	}
	w.protocol = m.to
	w.google.SetKey(key)
	if !m.to.Continues(m.from) {
		w.google.ClientStarted() // it has no version any more
	}
	corefile := w.corefile("api_key " + key)
	if m.restart {
		w.stop()
		w.start(corefile)
		return
	}
	testkit.Must(t, w.reload(corefile))
}

// requests returns how many requests for lists the first protocol takes.
func (m move) requests() int { return (&world{protocol: m.from}).perUpdate(3) }

func TestListsOfTheOtherProtocolTakeTheirPlace(t *testing.T) {
	t.Parallel()
	for _, m := range moves() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			w := m.begin(t)
			w.threaten("evil.example.com/", "new.example.com/")
			m.make(t, w)
			testkit.Until(w.t, "the lists of the other protocol", func() bool {
				w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
				return isBlocked(w.ask("new.example.com.", dns.TypeA))
			})
			w.updated(m.requests() + w.perUpdate(3))
			for i, r := range w.fetches() {
				// The first protocol has none, and the other one continues from its lists if it knows them. Those in memory are a key's own.
				if known := m.to.Continues(m.from) && i >= m.requests() && !(m.memory && m.otherKey); known == (len(r.Versions) == 0) {
					t.Errorf("Request %d, %s: Expected versions: %t, got %x", i, r.Method, known, r.Versions)
				}
			}
		})
	}
}

// Each protocol has waits of its own, which hold when it comes back. By another key the
// server is asked at once: its waits belong to another client.
func TestWaitsOfAProtocolHoldWhenItComesBack(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, m := range moves() {
		if m.otherKey {
			continue
		}
		t.Run(m.String(), func(t *testing.T) {
			w := m.begin(t)
			m.make(t, w)
			w.updated(m.requests() + w.perUpdate(3))
			asked := len(w.fetches())
			m.from, m.to = m.to, m.from
			m.make(t, w)
			w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
			testkit.Equal(t, "no request before the minimum waits are over", len(w.fetches()), asked)
		})
	}
}

// firstContact has engines that start from now on wait that long.
func firstContact(t *testing.T, d time.Duration) {
	before := engines.SetFirstContact(func() time.Duration { return d })
	t.Cleanup(func() { engines.SetFirstContact(before) })
}
