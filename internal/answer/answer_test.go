package answer

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A blocking answer is kept by clients no longer than the server's verdict holds.
func TestTTLOfABlockingAnswerEndsWithTheVerdict(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ttl     time.Duration
		expires time.Duration // from now; 0: the verdict does not end
		want    uint32
	}{
		{"an own list", time.Minute, 0, 60},
		{"an own list, a TTL beyond 30 minutes", time.Hour, 0, 1800},
		{"a verdict that lasts longer", time.Minute, time.Hour, 60},
		{"a verdict that ends earlier", time.Minute, 7*time.Second + 900*time.Millisecond, 7},
		{"a verdict that ends earlier, a TTL beyond 30 minutes", time.Hour, 29 * time.Minute, 29 * 60},
		{"a verdict that has just ended", time.Minute, -time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := lookup.Decision{Verdict: lookup.Unsafe, Threat: lookup.Malware}
				if tc.expires != 0 {
					d.Expires = time.Now().Add(tc.expires)
				}
				r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
				m := Reply{TTL: tc.ttl}.Blocked(t.Context(), new(test.ResponseWriter), r, d)
				if soa := m.Ns[0].(*dns.SOA); soa.Hdr.Ttl != tc.want || soa.Minttl != tc.want {
					t.Errorf("Expected a TTL and a minimum of %d, got %v", tc.want, soa)
				}
			})
		})
	}
}

// The monotonic clock stops while the machine is suspended, and the other one may be set.
func TestTTLOfABlockingAnswerEndsWithTheVerdictByBothClocks(t *testing.T) {
	now := time.Now()
	for name, received := range map[string]time.Time{
		"suspended for 20 minutes": testkit.ClockSet(now, -20*time.Minute),
		"set back by an hour":      testkit.ClockSet(now.Add(-20*time.Minute), time.Hour),
	} {
		d := lookup.Decision{Verdict: lookup.Unsafe, Threat: lookup.Malware, Expires: received.Add(30 * time.Minute)}
		if got := (Reply{TTL: MaxTTL}).ttlOf(d, now); got != 10*time.Minute {
			t.Errorf("%s: Expected 10 minutes, got %v", name, got)
		}
	}
}

// ofGoogle is a reply whose service is Safe Browsing, by Google.
var ofGoogle = Reply{}.by(true)

const advisory = "; advisory provided by Google, https://developers.google.com/safe-browsing/v4/advisory"

// by returns the reply where Google runs the server or somebody else does.
func (p Reply) by(google bool) Reply {
	p.Service = "Safe Browsing"
	if google {
		p.Advisory = strings.TrimPrefix(advisory, "; advisory provided by Google, ")
	}
	return p
}

func TestEachModeHasAWordAndItsAnswer(t *testing.T) {
	want := map[string]struct {
		rcode, answers, authority int
	}{
		"nxdomain": {dns.RcodeNameError, 0, 1}, "nodata": {dns.RcodeSuccess, 0, 1},
		"refused": {dns.RcodeRefused, 0, 0}, "sinkhole": {dns.RcodeSuccess, 1, 0},
	}
	words := Words()
	if len(words) != len(want) {
		t.Fatalf("Expected %d words, got %q", len(want), words)
	}
	for mode, word := range words {
		r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
		p := Reply{Respond: lookup.Response(mode), IPv4: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute}
		m := p.Blocked(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock})
		if w, ok := want[word]; !ok || m.Rcode != w.rcode || len(m.Answer) != w.answers || len(m.Ns) != w.authority {
			t.Errorf("%s: Expected %+v, got\n%v", word, w, m)
		}
	}
}

func TestEachKeptNameHasASourceAndIsCanonical(t *testing.T) {
	for i, k := range KeptNames {
		if !strings.HasPrefix(k.Source, "https://") || len(k.Read) != len("2026-11-25") || k.Reason == "" || k.Text == "" || len(k.Text) > maxText {
			t.Errorf("%s: Expected a source with its date, a reason and a short text, got %+v", k.Name, k)
		}
		if k.Name != dns.CanonicalName(k.Name) {
			t.Errorf("Expected the canonical form of %s", k.Name)
		}
		if k.Canary != (i > 0) {
			t.Errorf("%s: Expected the zone of RFC 9462 first, then canaries", k.Name)
		}
	}
}

// RFC 9462 section 6.4: NODATA for any type and any name in the zone. Firefox, Apple and Chrome take
// NXDOMAIN.
func TestAnswersAboutKeptNames(t *testing.T) {
	for _, tc := range []struct {
		qname string
		qtype uint16
		rcode int
		soa   string
		code  uint16
	}{
		{"_dns.resolver.arpa.", dns.TypeSVCB, dns.RcodeSuccess, "resolver.arpa.", dns.ExtendedErrorCodeOther},
		{"resolver.arpa.", dns.TypeA, dns.RcodeSuccess, "resolver.arpa.", dns.ExtendedErrorCodeOther},
		{"any.resolver.arpa.", dns.TypeTXT, dns.RcodeSuccess, "resolver.arpa.", dns.ExtendedErrorCodeOther},
		{"Use-Application-DNS.net.", dns.TypeA, dns.RcodeNameError, "net.", dns.ExtendedErrorCodeBlocked},
		{"mask.icloud.com.", dns.TypeHTTPS, dns.RcodeNameError, "icloud.com.", dns.ExtendedErrorCodeBlocked},
		{"dns-tunnel-check.googlezip.net.", dns.TypeAAAA, dns.RcodeNameError, "googlezip.net.", dns.ExtendedErrorCodeBlocked},
	} {
		k := keptFor(tc.qname)
		r := new(dns.Msg).SetQuestion(tc.qname, tc.qtype).SetEdns0(1232, false)
		m := k.Answer(t.Context(), new(test.ResponseWriter), r)
		if m.Rcode != tc.rcode || len(m.Answer) != 0 || len(m.Ns) != 1 || m.Question[0] != r.Question[0] || !m.RecursionAvailable {
			t.Errorf("%s: Expected %s and an SOA, got\n%v", tc.qname, dns.RcodeToString[tc.rcode], m)
			continue
		}
		if soa := m.Ns[0].(*dns.SOA); soa.Hdr.Name != tc.soa || soa.Minttl != KeptTTL || soa.Hdr.Ttl != KeptTTL {
			t.Errorf("%s: Expected the SOA of %s for %d seconds, got %v", tc.qname, tc.soa, KeptTTL, soa)
		}
		if codes, text := codesOf(t, m); len(codes) != 1 || codes[0] != tc.code || text != k.Text {
			t.Errorf("%s: Expected the error code %d with the reason, got %d with %q", tc.qname, tc.code, codes, text)
		}
		if plain := k.Answer(t.Context(), new(test.ResponseWriter), new(dns.Msg).SetQuestion(tc.qname, tc.qtype)); plain.IsEdns0() != nil {
			t.Errorf("%s: Expected no EDNS for a client that does not speak it, got\n%v", tc.qname, plain)
		}
	}
}

// keptFor returns what is kept about a name that is, or is below, one of KeptNames.
func keptFor(qname string) *Kept {
	i := slices.IndexFunc(KeptNames, func(k Kept) bool { return dns.IsSubDomain(k.Name, qname) })
	return &KeptNames[i]
}

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
	link := netip.MustParseAddr("fe80::2") // no client can use it without its own zone, which a record does not have
	all := []Designated{
		{Name: "dns.home.example", ALPN: "doq", Port: 853, Addresses: []netip.Addr{loopback}},
		{Name: "dns.home.example", ALPN: "dot", Port: 853, Addresses: []netip.Addr{link, lan4, lan6}},
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
