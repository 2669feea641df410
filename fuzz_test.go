package safebrowsing

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// confirming is a server that confirms suspected.example, and nothing else, at once.
type confirming struct{}

func (confirming) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{TTL: time.Hour, Threats: []lookup.ThreatHash{{
		Hash: lookup.HashExpression("suspected.example/"), Threats: lookup.AllThreats, TTL: time.Minute,
	}}}, nil
}

// FuzzServeDNS sends any message through the plugin, and gives any answer from upstream.
// Each query is answered once, by a message that fits it, and a query that passes reaches
// the next plugin as it came.
func FuzzServeDNS(f *testing.F) {
	type key struct{}
	var plugins []*SafeBrowsing
	for _, block := range []config.Block{
		{}, {Inspect: true, Explain: true}, {Monitor: true}, {Monitor: true, Inspect: true}, {UnsureFails: true, Inspect: true},
	} {
		block.ConfirmTimeout = time.Minute
		s := oneListedBy(f, block, confirming{})
		s.Next = plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
			m := ctx.Value(key{}).(*dns.Msg).Copy()
			m.Id = r.Id
			w.WriteMsg(m)
			return dns.RcodeSuccess, nil
		})
		s.block.Config.Structured = answer.Structured{Code: 65_000, Contacts: []string{"mailto:help@example.org"}}
		s.block.Config.Respond, s.block.Config.IPv4 = lookup.Response(len(plugins)%4), netip.MustParseAddr("192.0.2.1")
		plugins = append(plugins, s)
	}
	add := func(name string, qtype uint16, records ...string) {
		m := new(dns.Msg).SetQuestion(name, qtype)
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
	add("www.blocked.example.", dns.TypeA)
	add("a.suspected.example.", dns.TypeANY, "a.suspected.example. 300 IN A 192.0.2.7")
	add("clean.example.", dns.TypeHTTPS, "clean.example. 300 IN CNAME suspected.example.", "suspected.example. 300 IN HTTPS 1 blocked.example. alpn=h2")
	add("x.blocked.example.why.safebrowsing.", dns.TypeTXT)
	f.Fuzz(func(t *testing.T, which byte, query, reply []byte) {
		r, upstream := new(dns.Msg), new(dns.Msg)
		if r.Unpack(query) != nil || len(r.Question) == 0 || upstream.Unpack(reply) != nil {
			return // the server, or forward, refuses these
		}
		before, writer := r.String(), new(recorder)
		rcode, err := plugins[int(which)%len(plugins)].ServeDNS(context.WithValue(t.Context(), key{}, upstream), writer, r)
		if err != nil || rcode != dns.RcodeSuccess || len(writer.msgs) != 1 || r.String() != before {
			t.Fatalf("%d answers, %d, %v to\n%v\nwhich is now\n%v", len(writer.msgs), rcode, err, before, r)
		}
		m := writer.msgs[0]
		if m.Id != r.Id {
			t.Errorf("the answer has ID %d, the query %d", m.Id, r.Id)
		}
		if m.String() == upstream.String() {
			return
		}
		if _, err := m.Pack(); err != nil && upstreamPacks(upstream) {
			t.Errorf("%v of\n%v", err, m)
		}
	})
}

func upstreamPacks(m *dns.Msg) bool { _, err := m.Pack(); return err == nil }
