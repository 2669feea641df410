package safebrowsing

import (
	"bytes"
	"context"
	"fmt"
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

// A device that asks this server for a resolver is counted by its queries that a browser would send, whether the
// block checks the name or not.
func TestDevicesThatAskForResolversAreCounted(t *testing.T) {
	s := oneListed(t, config.Block{Except: []string{"google."}})
	also := func() int { return block.ThisProcess().Report().Devices.Also }
	before := also()
	w := clientAt(fmt.Sprintf("192.0.2.%d", 99+before)) // another one in each run of a process
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
		testkit.Equal(t, m.Question[0], also()-before, tc.want)
	}
}

// In monitor mode a decision outlives its query, unless metadata is read: that is
// done when the query ends.
func TestOnlyMetadataWaitsForADecisionInMonitorMode(t *testing.T) {
	for name, wait := range map[string]time.Duration{"without metadata": 0, "with metadata": time.Second} {
		subtest(t, name, func(t *testing.T) {
			s := suspecting(t, true, answers300)
			s.block.Config.Monitor = true
			ctx, w, begun := t.Context(), new(recorder), time.Now()
			if wait > 0 {
				ctx = metadata.ContextWithMetadata(ctx)
			}
			s.ServeDNS(ctx, w, aboutEvil.Copy())
			if took := time.Since(begun); took != wait || len(w.msgs) != 1 || w.msgs[0].Rcode != dns.RcodeSuccess {
				t.Errorf("Expected to pass after %s, took %s and got %v", wait, took, w.msgs)
			}
			s.detached.end()
		})
	}
}

// Also with look-back, for a pair that is there.
func TestCleanNameAllocatesAtMostOnce(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Hour} {
		s := oneListed(t, config.Block{LookBack: keep})
		s.block.Config.Online = keep > 0
		end := s.block.LookBack()
		m := new(dns.Msg).SetQuestion("www.static.example.com.", dns.TypeA)
		w := clientAt("192.0.2.20")
		if n := testing.AllocsPerRun(100, func() { s.ServeDNS(t.Context(), w, m) }); n > 1 {
			t.Errorf("Expected at most one allocation with look-back of %s, got %v", keep, n)
		}
		end()
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
			testkit.Equal(t, "panics", panics(t)-before, 1)
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
		testkit.Equal(t, "lines for three decisions about a query", s.names.left-before, 1)
	})
}

// BenchmarkServeDNS is what the plugin adds to the handling of a clean name.
func BenchmarkServeDNS(b *testing.B) {
	s, passed := clean(b, 0), 0
	s.Next = plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		passed++
		return dns.RcodeSuccess, nil
	})
	m := new(dns.Msg).SetQuestion("www.static.example.com.", dns.TypeA)
	w := clientAt("192.0.2.20")
	b.ReportAllocs()
	for b.Loop() {
		s.ServeDNS(context.Background(), w, m)
	}
	if passed < b.N {
		b.Errorf("%d of %d queries passed", passed, b.N)
	}
}

type noSearcher struct{}

func (noSearcher) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, lookup.ErrBackoff
}

func TestLogOfNamesIsBoundedAndSaysWhatItLeavesOut(t *testing.T) {
	q := dns.Question{Name: "x.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	d := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock}
	for name, tc := range map[string]struct {
		monitor, json        bool
		line, left, atTheEnd string
	}{
		"log":             {false, false, "Blocked x.example. A for 192.0.2.10", "Blocked 980 more names", "Blocked 1 more name;"},
		"monitor":         {true, false, "x.example. A for 192.0.2.10 would be blocked", "Monitor: 980 more names would have been", "Monitor: 1 more name would"},
		"monitor as JSON": {true, true, `"event":"would_block","client":"192.0.2.10"`, `"event":"left_out","left_out":980}`, `"event":"left_out","left_out":1}`},
		"json":            {false, true, `"event":"blocked","client":"192.0.2.10","name":"x.example.","type":"A","cause":"malware"`, `"event":"left_out","left_out":980}`, `"event":"left_out","left_out":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			l := nameLog{monitor: tc.monitor, json: tc.json}
			now := time.Now()
			for range 1000 {
				l.log("192.0.2.10", q, d, "malware", "", "", now)
			}
			testkit.Equal(t, "lines in one second", len(lines.About(tc.line)), 20)
			for range 11 {
				l.log("192.0.2.10", q, d, "malware", "", "", now.Add(time.Second))
			}
			if n := len(lines.About(tc.line)); n != 30 {
				t.Errorf("Expected 10 lines more after a second, got %d", n-20)
			}
			testkit.Equal(t, "lines about those left out", len(lines.About(tc.left)), 1)
			l.end(now)
			l.end(now)
			testkit.Equal(t, "lines about the last one left out", len(lines.About(tc.atTheEnd)), 1)
		})
	}
}
