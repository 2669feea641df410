package protocol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var monthSeeds = flag.Uint64("month.seeds", 2, "how many months TestAMonthOfRelaysThatFail simulates")

// A month of three relays that fail in every way, judged by each of them: none is asked
// too early. In months in which one of them never fails, no search fails, lists are fresh,
// and versions outlive each change of relay.
func TestAMonthOfRelaysThatFail(t *testing.T) {
	seeds := *monthSeeds
	if testing.Short() {
		seeds = min(seeds, 1)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newMonth(t, seed).live(30 * 24 * time.Hour) })
		})
	}
}

const (
	minimumWait     = 20 * time.Minute // that each relay demands between two fetches
	retryAfterOf503 = 40 * time.Minute
)

type month struct {
	*fleet
	t       *testing.T
	chance  *rand.Rand
	updater *updater.Updater
	paced   lookup.Searcher
	fetched []time.Time // with success
	updates int         // that changed a list
	anchor  int         // the relay that never fails, the last one; -1: none
}

func newMonth(t *testing.T, seed uint64) *month {
	f := newFleet(t, 3)
	m := &month{fleet: f, t: t, chance: rand.New(rand.NewPCG(seed, 1)), anchor: []int{-1, 2}[seed%2]}
	for _, s := range f.servers {
		s.JudgeSearchBackoff(false) // see obeyed
		s.SetMinimumWait("se-4b", minimumWait)
		s.SetMinimumWait("mw-4b", minimumWait)
	}
	schedule, err := updater.NewSchedule(nil)
	testkit.Must(t, err)
	m.updater, err = updater.New(updater.Config{Source: f, Database: new(lookup.Database), Schedule: schedule,
		Lists: []string{"se-4b", "mw-4b"}, Report: m.report, FirstContact: func() time.Duration { return 0 }})
	testkit.Must(t, err)
	m.paced = updater.Pace(f, schedule, DialectV5.SearchRules, func(updater.Event) {})
	return m
}

func (m *month) report(e updater.Event) {
	switch {
	case e.Kind == updater.Fetched && e.Err == nil:
		m.fetched = append(m.fetched, time.Now())
	case e.Kind == updater.Fetched && errors.Is(e.Err, lookup.ErrBackoff):
		m.t.Errorf("the back-off of the service ends before each relay's: %v", e.Err)
	case e.Kind == updater.ListUpdated:
		m.updates++
	case e.Kind == updater.ListRejected:
		m.t.Errorf("%s: %v", e.List, e.Err)
	}
}

func (m *month) live(life time.Duration) {
	ctx, cancel := context.WithTimeout(m.t.Context(), life)
	defer cancel()
	go m.updater.Run(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(1+m.chance.IntN(600)) * time.Second)
		if m.chance.IntN(6) == 0 {
			m.publish(n)
		}
		if m.chance.IntN(4) == 0 {
			m.change()
		}
		m.searchOnce(n)
	}
	synctest.Wait()
	m.judge()
}

// publish makes the next version of a list, the same one on each relay.
func (m *month) publish(n int) {
	for _, s := range m.servers {
		s.Publish("se-4b", [][]byte{[]byte("abcd"), {1, byte(n >> 16), byte(n >> 8), byte(n)}})
	}
}

// change makes one relay fail or work again.
func (m *month) change() {
	i := m.chance.IntN(3)
	if i == m.anchor {
		return
	}
	host := string(rune('a' + i))
	m.servers[i].Repair()
	m.down.Store(host, false)
	faults := []protocoltest.Fault{{Status: 500}, {Status: 503, RetryAfter: retryAfterOf503}, {Status: 429}, {Garbage: true}, {CutBody: true}, {Delay: time.Hour}}
	switch n := m.chance.IntN(len(faults) + 6); {
	case n < len(faults):
		m.servers[i].Break("", 1+m.chance.IntN(9), faults[n])
	case n == len(faults):
		m.down.Store(host, true)
	}
}

// searchOnce searches for what no search has asked for.
func (m *month) searchOnce(n int) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	_, err := m.paced.Search(ctx, []lookup.Prefix{lookup.Prefix(fmt.Sprintf("%04x", n))})
	switch {
	case err != nil && m.anchor >= 0:
		m.t.Errorf("a search failed while relay %d worked: %v", m.anchor, err)
	case err != nil && strings.Contains(err.Error(), "each endpoint"):
		m.t.Errorf("the back-off of the service ends before each relay's: %v", err)
	}
}

// obeyed checks that no search has followed one to which the relay has answered that it
// must wait. The pause that follows three failures of any kind is for the service, not
// for one relay.
func (m *month) obeyed(relay int, searches []protocoltest.Request) {
	waits := map[int]time.Duration{429: 15 * time.Minute, 503: min(retryAfterOf503, 30*time.Minute)}
	for i, r := range searches[1:] {
		last := searches[i]
		if gap := r.Time.Sub(last.Answered); gap < waits[last.Status] {
			m.t.Errorf("relay %d is searched %s after status %d", relay, gap, last.Status)
		}
	}
}

func (m *month) judge() {
	versions := 0
	for i, at := range m.fetched[1:] {
		switch gap := at.Sub(m.fetched[i]); {
		case gap < minimumWait:
			m.t.Errorf("fetched %s after an answer with a minimum wait of %s", gap, minimumWait)
		case gap > 2*minimumWait && m.anchor >= 0:
			m.t.Errorf("not fetched for %s while relay %d worked", gap, m.anchor)
		}
	}
	for i, s := range m.servers {
		m.obeyed(i, s.Requests("search"))
		requests := s.Requests("update")
		if len(requests) == 0 {
			m.t.Errorf("relay %d has never been asked for lists", i)
		}
		for _, r := range requests {
			if len(r.Versions) > 0 {
				versions++
			} else if m.anchor >= 0 && r.Time.After(m.fetched[0]) {
				m.t.Errorf("relay %d is asked for a full update, though each has the same versions", i)
			}
		}
	}
	m.t.Logf("anchor %d: %d events, %d fetches, %d with versions, %d updates, %v requests", m.anchor, len(m.events), len(m.fetched), versions, m.updates, m.asked())
}
