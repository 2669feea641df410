package safebrowsing

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/metrics/vars"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// oneListed returns a plugin with a name that its own list blocks, one that it allows, and one that it suspects.
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

// A device that asks for a resolver is counted by its queries that a browser would send, whether the block checks the name or not.
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
		{"www.example.", dns.TypeA, dns.ClassINET, 0}, {"dns.google.", dns.TypeTXT, dns.ClassINET, 0},
		{"dns.google.", dns.TypeA, dns.ClassCHAOS, 0},
		{"dns.google.", dns.TypeHTTPS, dns.ClassINET, 1}, {"dns.google.", dns.TypeA, dns.ClassINET, 1},
	} {
		m := new(dns.Msg).SetQuestion(tc.qname, tc.qtype)
		m.Question[0].Qclass = tc.qclass
		s.ServeDNS(t.Context(), w, m)
		testkit.Equal(t, m.Question[0], also()-before, tc.want)
	}
}

// In monitor mode a decision outlives its query, unless metadata is read: that is done when the query ends.
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
			testkit.Equal(t, "it passes after", time.Since(begun), wait)
			w.want(t, dns.RcodeSuccess)
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
		n := testing.AllocsPerRun(100, func() { s.ServeDNS(t.Context(), w, m) })
		testkit.Between(t, fmt.Sprint("allocations with look-back of ", keep), n, 0, 1)
		end()
	}
}

func TestPanicOfADecisionInMonitorModeDoesNotEndTheProcess(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"without metadata": t.Context(), "with metadata": metadata.ContextWithMetadata(t.Context()),
	} {
		s := oneListed(t, config.Block{Monitor: true})
		_, q := s.decide(ctx, &test.ResponseWriter{}, new(dns.Msg).SetQuestion("suspected.example.", dns.TypeA))
		before := panics(t)
		q.detach(func() { panic("on purpose") })()
		s.detached.end()
		testkit.Equal(t, name+": panics", panics(t)-before, 1)
	}
}

func panics(t *testing.T) float64 {
	t.Helper()
	var m dto.Metric
	testkit.Must(t, vars.Panic.Write(&m))
	return m.GetCounter().GetValue()
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
		lines := testkit.Capture(t)
		l := nameLog{monitor: tc.monitor, json: tc.json}
		now := time.Now()
		for range 1000 {
			l.log("192.0.2.10", q, d, "malware", "", "", now)
		}
		testkit.Equal(t, name+": lines in one second", len(lines.About(tc.line)), 20)
		for range 11 {
			l.log("192.0.2.10", q, d, "malware", "", "", now.Add(time.Second))
		}
		testkit.Equal(t, name+": lines after a second", len(lines.About(tc.line)), 30)
		testkit.Equal(t, name+": lines about those left out", len(lines.About(tc.left)), 1)
		l.end(now)
		l.end(now)
		testkit.Equal(t, name+": lines about the last one left out", len(lines.About(tc.atTheEnd)), 1)
	}
}

func TestAnAnswerThatHasExpiredRemainsForNoTime(t *testing.T) {
	now := time.Now() // -time.Minute: expired between the decision and its explanation
	for until, want := range map[time.Duration]string{time.Minute: "remaining=1m0s", 0: "remaining=0s", -time.Minute: "remaining=0s"} {
		words := txtStrings((&status.Answer{Verdict: status.VerdictBlocked, Expires: now.Add(until)}).Words(now))
		testkit.Equal(t, fmt.Sprintf("%q has %s", words, want), slices.Contains(words, want), true)
	}
}

// A name that somebody asks about is nobody's business upstream, also where CH or TXT was forgotten.
func TestWhyIsRefusedUnlessSetAndForOtherTypesAndClasses(t *testing.T) {
	for _, explain := range []bool{false, true} {
		inBubble(t, 0, func(s *SafeBrowsing) { s.block.Config.Explain = explain }, nil, func(t *testing.T, b *bubble) {
			for q, answered := range map[dns.Question]bool{
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}: explain,
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeTXT, Qclass: dns.ClassINET}:  false,
				{Name: "clean.example.Why.SafeBrowsing.", Qtype: dns.TypeA, Qclass: dns.ClassINET}:    false,
				{Name: "clean.example.why.safebrowsing.", Qtype: dns.TypeA, Qclass: dns.ClassCHAOS}:   false,
			} {
				rcode, w := map[bool]int{false: dns.RcodeRefused, true: dns.RcodeSuccess}[answered], new(recorder)
				b.plugin.ServeDNS(t.Context(), w, &dns.Msg{Question: []dns.Question{q}})
				if len(w.msgs) != 1 || w.msgs[0].Rcode != rcode || (len(w.msgs[0].Answer) == 1) != answered {
					t.Errorf("explain %v, %v: Expected %s, got %v", explain, q, dns.RcodeToString[rcode], w.msgs)
				}
			}
		})
	}
}

// Of a name that is suspected why says what clients get, and of another one that a list is missing.
func TestWhyOfANameThatIsNotConfirmed(t *testing.T) {
	testkit.Capture(t)
	for fails, want := range map[bool]string{false: "suspected, passes for now: ", true: "suspected, gets SERVFAIL for now: "} {
		alter := func(s *SafeBrowsing) { s.block.Config.UnsureFails, s.block.Settings.Lists = fails, "se-4b mw-4b" }
		inBubble(t, 0, alter, []string{"evil.example/"}, func(t *testing.T, b *bubble) {
			time.Sleep(24 * time.Hour) // the server has no mw-4b
			b.google.Break("search", 1<<30, protocoltest.Fault{Status: 429})
			b.ask("192.0.2.1", "evil.example.")
			for name, want := range map[string]string{"evil.example.": want, "clean.example.": "no threat list has it, but not all lists are here"} {
				testkit.WantStart(t, b.plugin.block.Why(lookup.FromQname(name)).Note, want)
			}
		})
	}
}

// A string of a TXT record has at most 255 bytes (RFC 1035 section 3.3). A longer value is in several, which are the value together.
func TestALongNoteIsDividedBetweenWords(t *testing.T) {
	long := strings.Repeat(`dial tcp "a\b": connection refused; `, 20) // a backslash begins an escape
	for name, tc := range map[string]struct{ note, want string }{
		"of words":         {long, long},
		"of one word":      {strings.Repeat("0123456789", 60), strings.Repeat("0123456789", 60)},
		"of other scripts": {strings.Repeat("зона", 90), strings.Repeat("зона", 90)},
		"without an end":   {strings.Repeat("word ", 1000), strings.Repeat("word ", 198) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(dns.Msg).SetQuestion("example.org.", dns.TypeTXT)
			m.Answer = []dns.RR{&dns.TXT{
				Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
				Txt: txtStrings((&status.Answer{Note: tc.note}).Words(time.Now())),
			}}
			wire, err := m.Pack()
			testkit.Must(t, err)
			testkit.Must(t, m.Unpack(wire))
			texts := stringsOf(wire[len(wire)-int(m.Answer[0].Header().Rdlength):])
			i := slices.IndexFunc(texts, func(s string) bool { return strings.HasPrefix(s, "note=") })
			for _, s := range texts[i : len(texts)-1] {
				if strings.Contains(tc.note, " ") && !strings.HasSuffix(s, " ") {
					t.Errorf("%q ends within a word", s)
				}
			}
			testkit.Equal(t, "the note", strings.Join(texts[i:], ""), "note="+tc.want)
		})
	}
}

func stringsOf(data []byte) (all []string) {
	for len(data) > 0 {
		end := 1 + int(data[0])
		all, data = append(all, string(data[1:end])), data[end:]
	}
	return all
}

func TestWrongPlaceInTheOrderIsRefused(t *testing.T) {
	for directives, ok := range map[string]bool{
		"errors acl safebrowsing cache forward":          true,
		"errors":                                         true, // not compiled in by name: nothing to say
		"errors acl cache safebrowsing forward":          false,
		"errors cache forward on sign view safebrowsing": false,
		"errors hosts safebrowsing":                      false,
	} {
		if err := checkPosition(strings.Fields(directives)); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "plugin.cfg") {
			t.Errorf("%s: Expected ok %v, or advice, got %v", directives, ok, err)
		}
	}
}

// A block of before must not hand its queries to one that may have other rules for these clients.
func TestOnlyOneBlockTakesAPlace(t *testing.T) {
	block := func(view, address string, keys ...string) *SafeBrowsing {
		return &SafeBrowsing{place: place{keys, []string{address}, view}}
	}
	const tls, quic, h3 = "tls://.:853", "quic://.:853", "https3://.:443"
	before := block("", "::1", tls, quic)
	for name, tc := range map[string]struct {
		later []*SafeBrowsing
		want  int // in later; -1: none
	}{
		"the same":               {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::1", tls, quic)}, 1},
		"another address":        {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::2", h3)}, 0},
		"one key more":           {[]*SafeBrowsing{block("", "::1", "dns://.:53"), block("", "::1", tls, quic, h3)}, 1},
		"two at other addresses": {[]*SafeBrowsing{block("", "::2", quic), block("", "::3", quic)}, -1},
		"over TLS only":          {[]*SafeBrowsing{block("", "::1", tls)}, -1},
		"another view":           {[]*SafeBrowsing{block("kids", "::1", tls, quic)}, -1},
		"another zone":           {[]*SafeBrowsing{block("", "::1", "quic://a.:853")}, -1},
	} {
		var want *SafeBrowsing
		if tc.want >= 0 {
			want = tc.later[tc.want]
		}
		testkit.Equal(t, name, before.place.successor(tc.later), want)
	}
}
