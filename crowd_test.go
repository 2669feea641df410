package safebrowsing

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// crowd is a plugin whose next plugin answers at once, and clients that ask it. Its server takes a second.
type crowd struct {
	plugin  *SafeBrowsing
	all     sync.WaitGroup
	waiting atomic.Int32 // queries that are not answered yet
	short   atomic.Int32 // answers with a TTL of at most 5
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{plugin: suspecting(t, true, answers300)}
	c.plugin.waiting, c.plugin.searching = newPlaces(0) // whatever memory this machine has
	return c
}

func (c *crowd) ask(client netip.Addr, name string) {
	c.waiting.Add(1)
	c.all.Go(func() {
		defer c.waiting.Add(-1)
		w := clientAt(client.String())
		c.plugin.ServeDNS(context.Background(), w, new(dns.Msg).SetQuestion(name, dns.TypeA))
		if len(w.msgs) == 1 && len(w.msgs[0].Answer) == 1 && w.msgs[0].Answer[0].Header().Ttl <= maxUnsureTTL {
			c.short.Add(1)
		}
	})
}

// While the server is slow, queries for any subdomain of a suspected name wait: for one search, which no limit of a client bounds.
func TestQueriesThatWaitAreBounded(t *testing.T) {
	testkit.Capture(t)
	network := netip.MustParsePrefix("2001:db8::/32")
	many := func(n int) netip.Addr { return siteOf(netip.MustParseAddr("2a00::"), n<<24) }
	for _, tc := range []struct {
		name               string
		memory             int64
		client             func(n int) netip.Addr
		monitor            bool
		waiting, shortened int32 // queries that wait at most, and answers to the others
	}{
		{"one client", 0, func(int) netip.Addr { return network.Addr() }, false, 32, 5_000 - 32},
		{"an IPv6 /32", 0, func(n int) netip.Addr { return siteOf(network.Addr(), n) }, false, 2_048, 5_000 - 2_048},
		{"many networks", 0, many, false, 2_048, 5_000 - 2_048},
		{"many networks on a router", 64 << 20, many, false, 256, 5_000 - 256},
		{"nothing waits in monitor mode", 0, func(int) netip.Addr { return network.Addr() }, true, 0, 0},
	} {
		subtest(t, tc.name, func(t *testing.T) {
			c, before := newCrowd(t), runtime.NumGoroutine()
			c.plugin.block.Config.Monitor = tc.monitor
			c.plugin.waiting, c.plugin.searching = newPlaces(tc.memory)
			for n := range 5_000 {
				c.ask(tc.client(n), fmt.Sprintf("n%d.evil.example.com.", n))
			}
			synctest.Wait()
			got := [2]int32{c.waiting.Load(), c.short.Load()}
			testkit.Equal(t, "queries that wait, and that pass with a short TTL", got, [2]int32{tc.waiting, tc.shortened})
			testkit.Between(t, "goroutines", runtime.NumGoroutine()-before, 0, 2_048+100)
			if leave, ok := c.plugin.waiting.Take(netip.MustParseAddr("192.0.2.1"), "name"); ok {
				leave()
			} else {
				t.Error("Expected a place for another client and another name")
			}
			c.all.Wait()
			time.Sleep(2 * time.Second) // confirmations in monitor mode outlive their queries
			c.plugin.detached.end()
			_, ok := c.plugin.waiting.Take(network.Addr(), "")
			testkit.Equal(t, "a place is free again", ok, true)
		})
	}
}

// siteOf returns the nth site of a network.
func siteOf(network netip.Addr, n int) netip.Addr {
	a := network.As16()
	binary.BigEndian.PutUint32(a[3:], binary.BigEndian.Uint32(a[3:])|uint32(n))
	return netip.AddrFrom16(a)
}

// A flood of one network, of names that all need a search of their own, does not fill the queue of searches.
func TestAFloodOfOneNetworkLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		hashes := []lookup.FullHash{lookup.HashExpression("evil.example.com/")}
		for n := range 3_000 {
			hashes = append(hashes, lookup.HashExpression(fmt.Sprintf("c%d.example/", n)))
		}
		c.plugin.block.Use(engine.ServiceForTests(checking(t, "mw-4b", searched{time.Second, "evil.example.com/"}, hashes...)))
		for n := range 3_000 {
			c.ask(siteOf(netip.MustParseAddr("2001:db8::"), n), fmt.Sprintf("c%d.example.", n))
		}
		synctest.Wait()
		testkit.Equal(t, "queries of the flood that wait", c.waiting.Load(), 512)
		w := clientAt("192.0.2.1")
		begun := time.Now()
		c.plugin.ServeDNS(t.Context(), w, aboutEvil.Copy())
		w.want(t, dns.RcodeNameError)
		testkit.Between(t, "the search begins after at most two others, and takes", time.Since(begun), 0, 3*time.Second)
		c.all.Wait()
		for n := range 512 { // again as before
			if _, ok := c.plugin.searching.Take(siteOf(netip.MustParseAddr("2001:db8::"), n), ""); !ok {
				t.Fatalf("Expected places to be free again, got %d", n)
			}
		}
	})
}

// FuzzServeDNS sends any message through the plugin, and gives any answer from upstream. Each query is answered once, by a message that
// fits it, and a query that passes reaches the next plugin as it came. Where nothing may be blocked the answer passes as it is.
func FuzzServeDNS(f *testing.F) {
	type key struct{}
	var plugins []*SafeBrowsing
	for _, block := range []config.Block{
		{}, {Inspect: true, Explain: true}, {Monitor: true}, {Monitor: true, Inspect: true}, {UnsureFails: true, Inspect: true},
	} {
		block.ConfirmTimeout = time.Minute
		s := oneListedBy(f, block, searched{threat: "suspected.example/"})
		s.Next = plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, _ *dns.Msg) (int, error) {
			w.WriteMsg(ctx.Value(key{}).(*dns.Msg).Copy())
			return dns.RcodeSuccess, nil
		})
		s.block.Config.Structured = answer.Structured{Code: 65_000, Contacts: []string{"mailto:help@example.org"}}
		s.block.Config.Respond, s.block.Config.IPv4 = lookup.Response(len(plugins)%4), netip.MustParseAddr("192.0.2.1")
		plugins = append(plugins, s)
	}
	add := func(name string, qtype uint16, records ...string) {
		m := new(dns.Msg).SetQuestion(name, qtype)
		if strings.HasSuffix(name, ".why.safebrowsing.") {
			m.Question[0].Qclass = dns.ClassCHAOS
		}
		m.SetEdns0(1232, true)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65_000}}
		query, _ := m.Pack()
		upstream := new(dns.Msg).SetReply(m)
		for _, text := range records {
			rr, err := dns.NewRR(text)
			testkit.Must(f, err)
			upstream.Answer = append(upstream.Answer, rr)
		}
		reply, _ := upstream.Pack()
		for i := range plugins {
			f.Add(byte(i), query, reply)
		}
	}
	add("blocked.example.", dns.TypeA)
	add("a.suspected.example.", dns.TypeANY, "a.suspected.example. 300 IN A 192.0.2.7")
	add("clean.example.", dns.TypeHTTPS, "clean.example. 300 IN CNAME suspected.example.", "suspected.example. 300 IN HTTPS 1 blocked.example. alpn=h2")
	add("x.blocked.example.why.safebrowsing.", dns.TypeTXT)
	add("allowed.example.", dns.TypeA, "allowed.example. 300 IN CNAME blocked.example.")
	f.Fuzz(func(t *testing.T, which byte, query, reply []byte) {
		r, upstream := new(dns.Msg), new(dns.Msg)
		if r.Unpack(query) != nil || len(r.Question) == 0 || upstream.Unpack(reply) != nil {
			return // the server, or forward, refuses these
		}
		upstream.Id = r.Id // forward checks it
		before, writer := r.String(), new(recorder)
		rcode, err := plugins[int(which)%len(plugins)].ServeDNS(context.WithValue(t.Context(), key{}, upstream), writer, r)
		if err != nil || rcode != dns.RcodeSuccess || len(writer.msgs) != 1 || r.String() != before {
			t.Fatalf("%d answers, %d, %v to\n%v\nwhich is now\n%v", len(writer.msgs), rcode, err, before, r)
		}
		m := writer.msgs[0]
		testkit.Equal(t, "the answer has ID", m.Id, r.Id)
		if m.String() == upstream.String() {
			return
		}
		if name := strings.ToLower(r.Question[0].Name); name == "allowed.example." || plugins[int(which)%len(plugins)].block.Config.Monitor && strings.HasSuffix(name, ".example.") {
			t.Errorf("Expected the answer for %s to pass as it is, got\n%v", name, m)
		}
		_, theirs := upstream.Pack()
		if _, err := m.Pack(); err != nil && theirs == nil {
			t.Errorf("%v of\n%v", err, m)
		}
	})
}
