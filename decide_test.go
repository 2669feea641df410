package safebrowsing

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// oneListed returns a plugin with a name that its own list blocks, one that it allows,
// and one that it suspects.
func oneListed(t testing.TB, block config.Block) *SafeBrowsing {
	t.Helper()
	return oneListedBy(t, block, noSearcher{})
}

// oneListedBy is oneListed with a server that is asked about suspected names.
func oneListedBy(t testing.TB, block config.Block, searcher lookup.Searcher) *SafeBrowsing {
	t.Helper()
	dir := t.TempDir()
	for name, own := range map[string]config.OwnFile{"blocked.example\nblocked.lan\n": {Path: "block.txt"}, "allowed.example\n": {Path: "allow.txt", Allow: true}} {
		own.Path = testkit.Write(t, dir, own.Path, name)
		block.Own = append(block.Own, own)
	}
	block.Zones, block.Reply = []string{"."}, answer.Reply{TTL: time.Minute}
	s := newPlugin(config.Config{Block: block}, plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		return dns.RcodeSuccess, nil
	}))
	testkit.Must(t, s.block.ReadOwn())
	t.Cleanup(s.block.End)
	s.block.Use(engine.ServiceForTests(checking(t, "se-4b", searcher, lookup.HashExpression("suspected.example/"))))
	return s
}

// checking returns a checker of one list that has the prefixes of hashes.
func checking(t testing.TB, list string, searcher lookup.Searcher, hashes ...lookup.FullHash) *lookup.Checker {
	t.Helper()
	slices.SortFunc(hashes, func(a, b lookup.FullHash) int { return bytes.Compare(a[:], b[:]) })
	builder := prefixset.NewBuilder(len(hashes))
	for _, hash := range hashes {
		testkit.Must(t, builder.Add(hash[:4], 4))
	}
	database := new(lookup.Database)
	database.Publish([]lookup.List{{Name: list, Set: builder.Set()}})
	checker, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: searcher})
	testkit.Must(t, err)
	t.Cleanup(checker.Close)
	return checker
}

func TestDecideReturnsTheWayOfAQuery(t *testing.T) {
	blocks := map[string]config.Block{
		"default": {}, "monitor": {Monitor: true}, "inspect": {Inspect: true}, "both": {Monitor: true, Inspect: true},
	}
	for _, tc := range []struct {
		name                           string
		qtype, qclass                  uint16
		byDefault, monitor, insp, both way
	}{
		{"clean.example.", dns.TypeA, dns.ClassINET, passed, passed, inspect, inspect},
		{"allowed.example.", dns.TypeA, dns.ClassINET, passed, passed, passed, passed},
		{"blocked.example.", dns.TypeA, dns.ClassINET, answered, passed, answered, passed},
		{"suspected.example.", dns.TypeA, dns.ClassINET, confirm, watch, confirm, watch},
		{"suspected.example.", dns.TypeTXT, dns.ClassINET, passed, passed, passed, passed},
		{"suspected.example.", dns.TypeA, dns.ClassHESIOD, passed, passed, passed, passed},
		{"blocked.lan.", dns.TypeA, dns.ClassINET, passed, passed, passed, passed},
		{"suspected.example.why.safebrowsing.", dns.TypeTXT, dns.ClassCHAOS, answered, answered, answered, answered},
	} {
		for mode, want := range map[string]way{"default": tc.byDefault, "monitor": tc.monitor, "inspect": tc.insp, "both": tc.both} {
			t.Run(tc.name+" "+dns.TypeToString[tc.qtype]+" "+mode, func(t *testing.T) {
				m := new(dns.Msg).SetQuestion(tc.name, tc.qtype)
				m.Question[0].Qclass = tc.qclass
				w := new(recorder)
				block := blocks[mode]
				block.Except = []string{"lan."}
				on, q := oneListed(t, block).decide(t.Context(), w, m)
				if on != want {
					t.Errorf("Expected way %d, got %d", want, on)
				}
				if slow := want == inspect || want == confirm || want == watch; slow != (q != nil) {
					t.Errorf("Expected a query only if it takes longer, got %v", q)
				}
				if q != nil && (want == inspect) != (q.suspect == nil) {
					t.Errorf("Expected a suspect unless the answer is inspected, got %v", q.suspect)
				}
				if (len(w.msgs) == 1) != (want == answered) || len(w.msgs) > 1 {
					t.Errorf("Expected one message only if answered, got %d", len(w.msgs))
				}
			})
		}
	}
}

// In monitor mode a decision outlives its query, unless metadata is read: that is
// done when the query ends.
func TestOnlyMetadataWaitsForADecisionInMonitorMode(t *testing.T) {
	for name, tc := range map[string]struct {
		ctx  context.Context
		wait bool
	}{
		"without metadata": {t.Context(), false},
		"with metadata":    {metadata.ContextWithMetadata(t.Context()), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := oneListed(t, config.Block{Monitor: true})
			m := new(dns.Msg).SetQuestion("suspected.example.", dns.TypeA)
			_, q := s.decide(tc.ctx, &test.ResponseWriter{}, m)
			decide, joined := make(chan struct{}), make(chan struct{})
			join := q.detach(func() { <-decide })
			go func() {
				defer close(joined)
				join()
			}()
			atMost := 10 * time.Second
			if tc.wait {
				atMost = 20 * time.Millisecond
			}
			waited := false
			select {
			case <-joined:
			case <-time.After(atMost):
				waited = true
			}
			if waited != tc.wait {
				t.Errorf("Expected the query to wait for the decision: %v, got %v", tc.wait, waited)
			}
			close(decide)
			<-joined
			s.detached.end()
		})
	}
}

// A device that asks this server for a resolver is counted by its queries that a browser would send, whether the
// block checks the name or not.
func TestDevicesThatAskForResolversAreCounted(t *testing.T) {
	s := oneListed(t, config.Block{Except: []string{"google."}})
	also := func() int { return block.ThisProcess().Report().Devices.Also }
	before := also()
	w := &oneClient{from: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 99), Port: 53053}}
	for _, tc := range []struct {
		qname         string
		qtype, qclass uint16
		want          int
	}{
		{"www.example.", dns.TypeA, dns.ClassINET, 0},
		{"dns.google.", dns.TypeTXT, dns.ClassINET, 0},
		{"dns.google.", dns.TypeA, dns.ClassCHAOS, 0},
		{"dns.google.", dns.TypeHTTPS, dns.ClassINET, 1},
		{"dns.google.", dns.TypeA, dns.ClassINET, 1},
	} {
		m := new(dns.Msg).SetQuestion(tc.qname, tc.qtype)
		m.Question[0].Qclass = tc.qclass
		s.ServeDNS(t.Context(), w, m)
		if got := also() - before; got != tc.want {
			t.Errorf("%v: %d devices more, want %d", m.Question[0], got, tc.want)
		}
	}
}

func TestCleanNameAllocatesAtMostOnce(t *testing.T) {
	s := oneListed(t, config.Block{})
	m := new(dns.Msg).SetQuestion("www.static.example.com.", dns.TypeA)
	w := newOneClient()
	if n := testing.AllocsPerRun(100, func() { s.ServeDNS(t.Context(), w, m) }); n > 1 {
		t.Errorf("Expected at most one allocation, got %v", n)
	}
}

func TestPanicOfADecisionInMonitorModeDoesNotEndTheProcess(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"without metadata": t.Context(), "with metadata": metadata.ContextWithMetadata(t.Context()),
	} {
		t.Run(name, func(t *testing.T) {
			s := oneListed(t, config.Block{Monitor: true})
			_, q := s.decide(ctx, &test.ResponseWriter{}, new(dns.Msg).SetQuestion("suspected.example.", dns.TypeA))
			before := panics(t)
			q.detach(func() { panic("on purpose") })()
			s.detached.end()
			if got := panics(t) - before; got != 1 {
				t.Errorf("Expected one panic to be counted, got %v", got)
			}
		})
	}
}

func panics(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	testkit.Must(t, err)
	for _, family := range families {
		if family.GetName() == "coredns_panics_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("CoreDNS does not count panics")
	return 0
}

// Both a name and targets in its answer may be unsafe, in monitor mode at least.
func TestQueryIsLoggedAsBlockedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, in which the log would take more lines
		s := oneListed(t, config.Block{Monitor: true})
		_, q := s.decide(t.Context(), &test.ResponseWriter{}, new(dns.Msg).SetQuestion("suspected.example.", dns.TypeA))
		for s.names.left == 0 { // until the log takes no more: then each further line is counted
			s.observeBlocked(t.Context(), "192.0.2.1", q.question, "", lookup.Decision{})
		}
		before := s.names.left
		for range 3 {
			q.observe(lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, List: "se-4b"})
		}
		if got := s.names.left - before; got != 1 {
			t.Errorf("Expected one line for three decisions about a query, got %d", got)
		}
	})
}
