package answer

import (
	"net"
	"net/netip"
	"testing"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

// fromAddress is a writer of a client at an address.
type fromAddress struct {
	test.ResponseWriter
	at string
}

func (f *fromAddress) RemoteAddr() net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.at), 5353))
}

func TestResolversAreDesignatedInOrderWithWhatClientsNeed(t *testing.T) {
	lan4, lan6, loopback := netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("127.0.0.1")
	all := []Designated{
		{Name: "dns.home.example", ALPN: "doq", Port: 853, Addresses: []netip.Addr{loopback}},
		{Name: "dns.home.example", ALPN: "dot", Port: 853, Addresses: []netip.Addr{lan4, lan6}},
		{Name: "dns.home.example", ALPN: "h2", Port: 8443, Path: DoHPath},
	}
	dot := ` alpn="dot" port="853" ipv4hint="192.168.1.2" ipv6hint="fd00::2"`
	doh := ` alpn="h2" port="8443" dohpath="/dns-query{?dns}"`
	for _, tc := range []struct {
		name, client, qname string
		qtype               uint16
		want                []string
		extra               int
	}{
		{"a client of the network", "192.168.1.20", "_dns.resolver.arpa.", dns.TypeSVCB, []string{"1 dns.home.example." + dot, "2 dns.home.example." + doh}, 2},
		{"this machine", "127.0.0.1", "_dns.resolver.arpa.", dns.TypeSVCB,
			[]string{`1 dns.home.example. alpn="doq" port="853" ipv4hint="127.0.0.1"`, "2 dns.home.example." + dot, "3 dns.home.example." + doh}, 3},
		{"the case of the query", "192.168.1.20", "_DNS.Resolver.ARPA.", dns.TypeSVCB, []string{"1 dns.home.example." + dot, "2 dns.home.example." + doh}, 2},
		{"another type", "192.168.1.20", "_dns.resolver.arpa.", dns.TypeHTTPS, nil, 0},
		{"another name", "192.168.1.20", "resolver.arpa.", dns.TypeSVCB, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(dns.Msg).SetQuestion(tc.qname, tc.qtype).SetEdns0(1232, false)
			m := keptFor(tc.qname).Designate(t.Context(), &fromAddress{at: tc.client}, r, all)
			if m.Rcode != dns.RcodeSuccess || len(m.Answer) != len(tc.want) || (len(m.Ns) == 1) != (tc.want == nil) {
				t.Fatalf("Expected %d records, or NODATA, got\n%v", len(tc.want), m)
			}
			for i, rr := range m.Answer {
				if got := rr.String()[len(rr.Header().String()):]; got != tc.want[i] || rr.Header().Name != tc.qname || rr.Header().Ttl != KeptTTL {
					t.Errorf("Expected %s, got %v", tc.want[i], rr)
				}
			}
			if got := len(m.Extra) - 1; got != tc.extra { // without OPT
				t.Errorf("Expected %d addresses, got %v", tc.extra, m.Extra)
			}
			if _, err := m.Pack(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("none that the client can reach", func(t *testing.T) {
		r := new(dns.Msg).SetQuestion("_dns.resolver.arpa.", dns.TypeSVCB)
		if m := keptFor("_dns.resolver.arpa.").Designate(t.Context(), &fromAddress{at: "192.168.1.20"}, r, all[:1]); len(m.Answer) != 0 || len(m.Ns) != 1 {
			t.Errorf("Expected NODATA, got\n%v", m)
		}
	})
}
