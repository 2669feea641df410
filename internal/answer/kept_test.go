package answer

import (
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

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
