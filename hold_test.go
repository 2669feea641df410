package safebrowsing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// searched is a server that takes its time to say that an expression is a threat, and nothing else. "": nothing is.
type searched struct {
	takes  time.Duration
	threat string
}

func (s searched) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	time.Sleep(s.takes)
	answer := lookup.Answer{TTL: time.Minute}
	if s.threat != "" {
		answer.Threats = []lookup.ThreatHash{{Hash: lookup.HashExpression(s.threat), Threats: lookup.AllThreats, TTL: time.Minute}}
	}
	return answer, nil
}

// suspecting is a plugin for which evil.example.com collides with a prefix, before another plugin.
func suspecting(t *testing.T, threat bool, next plugin.HandlerFunc) *SafeBrowsing {
	t.Helper()
	s := newPlugin(config.Config{Block: config.Block{Zones: []string{"."}, ConfirmTimeout: 10 * time.Second, Reply: answer.Reply{TTL: time.Minute}}}, next)
	server := searched{time.Second, map[bool]string{true: "evil.example.com/"}[threat]}
	s.block.Use(engine.ServiceForTests(checking(t, "mw-4b", server, lookup.HashExpression("evil.example.com/"))))
	return s
}

// blocking gives s an own list that blocks a name.
func blocking(t *testing.T, s *SafeBrowsing, name string) {
	t.Helper()
	s.block.Config.Own = []config.OwnFile{{Path: testkit.Write(t, t.TempDir(), "own.txt", name+"\n")}}
	testkit.Must(t, s.block.ReadOwn())
	t.Cleanup(s.block.End)
}

// recorder is a writer without a lock, like the writers of other plugins.
type recorder struct {
	test.ResponseWriter
	from  net.Addr // of the client; nil: as the ResponseWriter says, which makes it anew for each call
	calls []string
	msgs  []*dns.Msg
}

func (r *recorder) RemoteAddr() net.Addr {
	if r.from != nil {
		return r.from
	}
	return r.ResponseWriter.RemoteAddr()
}

// clientAt is a recorder for a client over UDP.
func clientAt(address string) *recorder {
	return &recorder{from: &net.UDPAddr{IP: netip.MustParseAddr(address).AsSlice(), Port: 53053}}
}

func (r *recorder) WriteMsg(m *dns.Msg) error {
	r.calls, r.msgs = append(r.calls, "WriteMsg"), append(r.msgs, m)
	return nil
}

func (r *recorder) Write(b []byte) (int, error) {
	m := new(dns.Msg)
	r.calls, r.msgs = append(r.calls, "Write"), append(r.msgs, m)
	m.Unpack(b)
	return len(b), nil
}
func (r *recorder) Close() error        { r.calls = append(r.calls, "Close"); return nil }
func (r *recorder) Hijack()             { r.calls = append(r.calls, "Hijack") }
func (r *recorder) TsigTimersOnly(bool) { r.calls = append(r.calls, "TsigTimersOnly") }

var aboutEvil = new(dns.Msg).SetQuestion("evil.example.com.", dns.TypeA)

// reply300 is an answer to r with a TTL of 300.
func reply300(r *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.Answer = []dns.RR{test.A(r.Question[0].Name + " 300 IN A 192.0.2.7")}
	return m
}

// answers300 is a plugin that answers at once.
var answers300 plugin.HandlerFunc = func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	return dns.RcodeSuccess, w.WriteMsg(reply300(r))
}

// asked is what becomes of one query about the name that collides, when all that it has begun has ended.
func (s *SafeBrowsing) asked(ctx context.Context) *recorder {
	w := new(recorder)
	s.ServeDNS(ctx, w, aboutEvil.Copy())
	s.detached.end()
	return w
}

// want fails the test unless there is one answer, with this response code.
func (r *recorder) want(t *testing.T, rcode int) {
	t.Helper()
	if len(r.msgs) != 1 || r.msgs[0].Rcode != rcode {
		t.Errorf("Expected %s, got %v", dns.RcodeToString[rcode], r.msgs)
	}
}

// subtest runs a part of a test in simulated time.
func subtest(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestNextPluginKeepsItsResultAndItsCallsInOrder(t *testing.T) {
	failure := errors.New("the next plugin's")
	for _, tc := range []struct {
		name  string
		next  func(w dns.ResponseWriter, r *dns.Msg)
		rcode int
		err   error
		want  []string
	}{
		{"an answer", func(w dns.ResponseWriter, r *dns.Msg) { w.WriteMsg(reply300(r)) }, dns.RcodeSuccess, nil, []string{"WriteMsg"}},
		{"two answers", func(w dns.ResponseWriter, r *dns.Msg) { w.WriteMsg(reply300(r)); w.WriteMsg(reply300(r)) }, dns.RcodeSuccess, nil, []string{"WriteMsg", "WriteMsg"}},
		{"nothing written, for the server to write SERVFAIL", func(dns.ResponseWriter, *dns.Msg) {}, dns.RcodeServerFailure, failure, nil},
		{"bytes, then the connection is closed", func(w dns.ResponseWriter, r *dns.Msg) {
			b, _ := reply300(r).Pack()
			w.Write(b)
			w.Close()
		}, dns.RcodeSuccess, nil, []string{"Write", "Close"}},
		{"the rest", func(w dns.ResponseWriter, _ *dns.Msg) { w.TsigTimersOnly(true); w.Hijack() }, dns.RcodeSuccess, nil, []string{"TsigTimersOnly", "Hijack"}},
	} {
		subtest(t, tc.name, func(t *testing.T) {
			s := suspecting(t, false, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				got, client := []any{w.RemoteAddr().String(), w.LocalAddr() != nil, w.TsigStatus()}, new(test.ResponseWriter).RemoteAddr().String()
				testkit.Equal(t, "the client's address, the server's, TSIG", got, []any{client, true, nil})
				tc.next(w, r)
				return tc.rcode, tc.err
			})
			w := new(recorder)
			rcode, err := s.ServeDNS(t.Context(), w, aboutEvil.Copy())
			testkit.Is(t, "the error", err, tc.err)
			testkit.Equal(t, "the response code and the calls", []any{rcode, w.calls}, []any{tc.rcode, tc.want})
		})
	}
}

func TestWhatTheNextPluginWritesLaterIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := suspecting(t, false, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
			m := reply300(r)
			w.WriteMsg(m)
			m.Answer[0].Header().Ttl = 1 // the message is the plugin's own again
			go func() {
				time.Sleep(time.Hour)
				w.WriteMsg(m)
			}()
			return dns.RcodeSuccess, nil
		})
		w := s.asked(t.Context())
		time.Sleep(2 * time.Hour)
		if len(w.msgs) != 1 || w.msgs[0].Answer[0].Header().Ttl != 300 {
			t.Errorf("Expected the one answer as it was when it was written, got %v", w.msgs)
		}
	})
}

// A client over HTTPS, or behind dns64, gets its answer when ServeDNS returns.
func TestQueryThatIsBlockedEndsBeforeTheNextPluginDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var canceled error
		ended := make(chan struct{})
		s := suspecting(t, true, func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
			defer close(ended)
			time.Sleep(30 * time.Second)
			canceled = ctx.Err()
			return dns.RcodeSuccess, w.WriteMsg(reply300(r))
		})
		w, begun := new(recorder), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		rcode, err := s.ServeDNS(ctx, w, aboutEvil.Copy())
		cancel()
		got := []any{time.Since(begun), rcode, err}
		testkit.Equal(t, "the end after the second that the confirmation takes", got, []any{time.Second, dns.RcodeSuccess, nil})
		<-ended
		synctest.Wait()
		w.want(t, dns.RcodeNameError)
		testkit.Must(t, canceled) // the lookup does not end, for the cache
	})
}

func TestNextPluginEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := suspecting(t, false, func(ctx context.Context, _ dns.ResponseWriter, _ *dns.Msg) (int, error) {
			<-ctx.Done()
			return dns.RcodeServerFailure, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := s.ServeDNS(ctx, new(recorder), aboutEvil.Copy())
		testkit.Equal(t, "it ends after", time.Since(begun), 3*time.Second)
		testkit.WantError(t, err)
	})
}

// The plugin cache refreshes an answer in a goroutine that outlives the query. Over UDP nothing ends it.
func TestWhatTheNextPluginLeavesBehindGoesOn(t *testing.T) {
	for name, threat := range map[string]bool{"passed": false, "blocked": true} {
		subtest(t, name, func(t *testing.T) {
			refreshed := make(chan error)
			s := suspecting(t, threat, func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				go func() {
					time.Sleep(2 * longest)
					refreshed <- ctx.Err()
				}()
				return dns.RcodeSuccess, w.WriteMsg(reply300(r))
			})
			s.ServeDNS(context.Background(), new(recorder), aboutEvil.Copy())
			testkit.Must(t, <-refreshed)
		})
	}
}

func TestPanicOfTheNextPluginIsThatOfTheQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := suspecting(t, false, func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) { panic("of the next plugin") })
		defer func() {
			testkit.Equal(t, "the panic, after which the server answers", recover(), any("of the next plugin"))
		}()
		s.ServeDNS(t.Context(), new(recorder), aboutEvil.Copy())
	})
}

func TestPanicOfAnAbandonedPluginIsLogged(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the verdict": 0, "after it": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			synctest.Test(t, func(t *testing.T) {
				s := suspecting(t, true, func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
					time.Sleep(after)
					panic("of the next plugin")
				})
				s.asked(t.Context()).want(t, dns.RcodeNameError)
			})
			testkit.WantParts(t, lines.Only(t, "panic"), `"evil.example.com.": of the next plugin`)
		})
	}
}

// readsMetadata is a writer that reads metadata whenever it is called, like the writer of dnstap does.
type readsMetadata struct {
	recorder
	ctx  context.Context
	seen string
}

func (w *readsMetadata) WriteMsg(m *dns.Msg) error {
	for _, label := range metadata.Labels(w.ctx) {
		if value := metadata.ValueFunc(w.ctx, label)(); label == "next/upstream" {
			w.seen = value
		}
	}
	return w.recorder.WriteMsg(m)
}

func TestMetadataOfTheNextPluginIsReadWhenItIsBack(t *testing.T) {
	for name, tc := range map[string]struct {
		threat         bool
		upstream, says string
	}{"passed": {false, "192.0.2.53", "safe"}, "blocked": {true, "", "unsafe"}} {
		subtest(t, name, func(t *testing.T) {
			var writes atomic.Int64
			s := suspecting(t, tc.threat, func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				testkit.Equal(t, "metadata of a plugin before", metadata.ValueFunc(ctx, "client/group")(), "kids")
				for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
					metadata.SetValueFunc(ctx, "next/upstream", func() string { return "192.0.2.53" })
					writes.Add(1)
				}
				w.WriteMsg(reply300(r))
				return dns.RcodeSuccess, nil
			})
			ctx := metadata.ContextWithMetadata(t.Context())
			metadata.SetValueFunc(ctx, "client/group", func() string { return "kids" })
			w := &readsMetadata{ctx: ctx}
			s.ServeDNS(ctx, w, aboutEvil.Copy())
			testkit.Equal(t, "next/upstream", w.seen, tc.upstream)
			s.detached.end()
			testkit.Equal(t, "the verdict", metadata.ValueFunc(ctx, "safebrowsing/verdict")(), tc.says)
			testkit.Between(t, "writes of the next plugin", writes.Load(), 1, 1500)
		})
	}
}

func TestShutdownDoesNotWaitForAPluginThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := suspecting(t, true, func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
			<-hang
			return dns.RcodeSuccess, nil
		})
		s.ServeDNS(t.Context(), new(recorder), aboutEvil.Copy())
		begun := time.Now()
		s.detached.end()
		testkit.Equal(t, "waited", time.Since(begun), shutdownGrace)
		close(hang)
	})
}

// aliasOf is an answer to r that makes its name an alias.
func aliasOf(r *dns.Msg, target string) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.Answer = []dns.RR{test.CNAME(r.Question[0].Name + " 300 IN CNAME " + target)}
	return m
}

// An answer that comes too late is not inspected. A suspected name that is blocked as an alias has not passed.
func TestAliasOfASuspectedName(t *testing.T) {
	for name, tc := range map[string]struct {
		takes          time.Duration
		fails          bool
		rcode, blocked int
	}{
		"an answer that comes too late": {900 * time.Millisecond, true, dns.RcodeServerFailure, 0},
		"an alias that is blocked":      {0, false, dns.RcodeNameError, 1},
	} {
		lines := testkit.Capture(t)
		subtest(t, name, func(t *testing.T) {
			s := suspecting(t, false, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				time.Sleep(tc.takes)
				return dns.RcodeSuccess, w.WriteMsg(aliasOf(r, "test-host.example."))
			})
			c := &s.block.Config
			c.ConfirmTimeout, c.UnsureFails, c.Inspect, c.LogBlocked = time.Millisecond, tc.fails, true, true
			blocking(t, s, "test-host.example")
			before := block.ThisProcess().Report().Today
			s.asked(t.Context()).want(t, tc.rcode)
			after := block.ThisProcess().Report().Today
			got := []any{after.Blocked - before.Blocked, after.Threats}
			testkit.Equal(t, "queries more that were blocked, and threats", got, []any{tc.blocked, before.Threats})
		})
		testkit.Equal(t, name+": lines about names that were blocked", len(lines.About("Blocked evil.example.com.")), tc.blocked)
	}
}

// Answers written raw are treated as others are.
func TestRawAnswers(t *testing.T) {
	const tested = "test-host.example."
	alias := func(r *dns.Msg) *dns.Msg { return aliasOf(r, tested) }
	for _, tc := range []struct {
		name, qname string
		inspect     bool
		timeout     time.Duration
		monitor     bool
		Reply       func(*dns.Msg) *dns.Msg
		want        string
		rcode       int
		ttl         uint32
	}{
		{"confirmed in time", "evil.example.com.", false, 10 * time.Second, false, reply300, "Write", dns.RcodeSuccess, 300},
		{"not confirmed in time", "evil.example.com.", false, time.Millisecond, false, reply300, "WriteMsg", dns.RcodeSuccess, 5},
		{"not confirmed in time, monitored", "evil.example.com.", false, time.Millisecond, true, reply300, "Write", dns.RcodeSuccess, 300},
		{"alias of a threat, not inspected", "www.example.", false, time.Second, false, alias, "Write", dns.RcodeSuccess, 300},
		{"alias of a threat", "www.example.", true, time.Second, false, alias, "WriteMsg", dns.RcodeNameError, 60},
		{"alias of a threat, of a name that collides", "evil.example.com.", true, 10 * time.Second, false, alias, "WriteMsg", dns.RcodeNameError, 60},
		{"alias of a threat, monitored", "www.example.", true, time.Second, true, alias, "Write", dns.RcodeSuccess, 300},
		{"no alias", "www.example.", true, time.Second, false, reply300, "Write", dns.RcodeSuccess, 300},
	} {
		subtest(t, tc.name, func(t *testing.T) {
			s := suspecting(t, false, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				b, err := tc.Reply(r).Pack()
				testkit.Is(t, "packing", err, nil)
				w.Write(b)
				clear(b) // they are the plugin's own again
				return dns.RcodeSuccess, nil
			})
			s.block.Config.ConfirmTimeout, s.block.Config.Inspect, s.block.Config.Monitor = tc.timeout, tc.inspect, tc.monitor
			blocking(t, s, tested)
			w := new(recorder)
			s.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion(tc.qname, dns.TypeA))
			s.detached.end()
			if len(w.calls) != 1 || w.calls[0] != tc.want {
				t.Fatalf("Expected %s, got %q", tc.want, w.calls)
			}
			m := w.msgs[0]
			if rrs := append(m.Answer, m.Ns...); m.Rcode != tc.rcode || len(rrs) != 1 || rrs[0].Header().Ttl != tc.ttl {
				t.Errorf("Expected %s and a TTL of %d, got\n%v", dns.RcodeToString[tc.rcode], tc.ttl, m)
			}
		})
	}
}

func TestRawBytesThatAreNoMessagePass(t *testing.T) {
	for _, inspect := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			for _, qname := range []string{"evil.example.com.", "www.example."} {
				s := suspecting(t, false, func(_ context.Context, w dns.ResponseWriter, _ *dns.Msg) (int, error) {
					n, err := w.Write([]byte("no message"))
					testkit.Equal(t, "written", []any{n, err}, []any{len("no message"), nil})
					return dns.RcodeSuccess, nil
				})
				s.block.Config.Inspect, s.block.Config.ConfirmTimeout = inspect, time.Millisecond
				w := new(recorder)
				s.ServeDNS(t.Context(), w, new(dns.Msg).SetQuestion(qname, dns.TypeA))
				testkit.Equal(t, qname, w.calls, []string{"Write"})
			}
		})
	}
}

func TestShortenedLeavesAllButTTLsAlone(t *testing.T) {
	m := new(dns.Msg).SetQuestion("example.org.", dns.TypeA)
	m.SetEdns0(1232, true)
	for _, text := range []string{
		"example.org. 300 IN A 192.0.2.1",
		"example.org. 300 IN RRSIG A 13 2 300 20270101000000 20261201000000 12345 example.org. AAAA",
	} {
		rr, err := dns.NewRR(text)
		testkit.Must(t, err)
		m.Answer = append(m.Answer, rr)
	}
	got := shortened(m, 5)
	sig, edns := got.Answer[1].(*dns.RRSIG), got.IsEdns0()
	testkit.Equal(t, "the TTL and the original TTL of the signature", [2]uint32{sig.Hdr.Ttl, sig.OrigTtl}, [2]uint32{5, 300})
	testkit.Equal(t, "the signature", sig.Signature, "AAAA")
	testkit.Equal(t, "the TTL, and EDNS", []any{got.Answer[0].Header().Ttl, edns.Do(), edns.UDPSize()}, []any{uint32(5), true, uint16(1232)})
	testkit.Equal(t, "the message of the next plugin, which may be in a cache", m.Answer[0].Header().Ttl, 300)
}

// A client connects to the end of a chain of aliases.
func TestOfManyTargetsTheLastSixteenAreInspected(t *testing.T) {
	m := new(dns.Msg)
	for i := range 40 {
		m.Answer = append(m.Answer, &dns.CNAME{Target: fmt.Sprintf("n%d.example.", i/2)})
	}
	if got := targetsOf(m); len(got) != maxTargets || got[0] != "n19.example." || got[15] != "n4.example." {
		t.Errorf("Expected the last 16 different targets, got %v", got)
	}
}
