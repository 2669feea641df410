package answer

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// An SOA at the query name says that the name is the apex of a zone, and so exists: dnsmasq then
// makes NODATA of a cached NXDOMAIN.
func TestTheSOAOfNXDOMAINIsOwnedByTheParentAndOfNODATAByTheName(t *testing.T) {
	for _, tc := range []struct {
		name      string
		qname     string
		mode      lookup.Response
		qtype     uint16 // 0: A
		own       lookup.Response
		want      string
		wantRcode int
	}{
		{name: "a host", qname: "www.evil.example.", want: "evil.example.", wantRcode: dns.RcodeNameError},
		{name: "a name below a TLD", qname: "evil.example.", want: "example.", wantRcode: dns.RcodeNameError},
		{name: "a TLD", qname: "example.", want: ".", wantRcode: dns.RcodeNameError},
		{name: "the case of the query", qname: "www.EVIL.Example.", want: "EVIL.Example.", wantRcode: dns.RcodeNameError},
		{name: "a dot within a label", qname: `a\.b.evil.example.`, want: "evil.example.", wantRcode: dns.RcodeNameError},
		{name: "NODATA", qname: "www.evil.example.", mode: lookup.NODATA, want: "www.evil.example."},
		{name: "NODATA of an own list", qname: "www.evil.example.", own: lookup.NODATA, want: "www.evil.example."},
		{name: "a sinkhole without an address of the type", qname: "www.evil.example.", mode: lookup.Sinkhole, qtype: dns.TypeAAAA, want: "www.evil.example."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(dns.Msg).SetQuestion(tc.qname, cmp.Or(tc.qtype, dns.TypeA))
			p := Reply{Respond: tc.mode, IPv4: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute}
			m := p.Blocked(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, Response: tc.own})
			if m.Rcode != tc.wantRcode || len(m.Answer) > 0 || len(m.Ns) != 1 || m.Ns[0].Header().Name != tc.want {
				t.Errorf("Expected %s with an SOA of %q, got\n%v", dns.RcodeToString[tc.wantRcode], tc.want, m)
			}
		})
	}
}

// RFC 8914 section 4.5 has the code 4 for an answer with forged addresses, and 15 for other
// response codes; the draft of structured errors forbids all but its own codes to clients that
// sent its option.
func TestASinkholesAnswerIsForgedAndBlocked(t *testing.T) {
	const option = 65010
	for _, tc := range []struct {
		name       string
		mode       lookup.Response
		qtype      uint16
		structured bool
		want       []uint16
	}{
		{"a sinkhole's address", lookup.Sinkhole, dns.TypeA, false, []uint16{dns.ExtendedErrorCodeBlocked, dns.ExtendedErrorCodeForgedAnswer}},
		{"a sinkhole's address, for a client that asks for structured errors", lookup.Sinkhole, dns.TypeA, true, []uint16{dns.ExtendedErrorCodeBlocked}},
		{"a sinkhole without an address of the type", lookup.Sinkhole, dns.TypeAAAA, false, []uint16{dns.ExtendedErrorCodeBlocked}},
		{"NXDOMAIN", lookup.NXDOMAIN, dns.TypeA, false, []uint16{dns.ExtendedErrorCodeBlocked}},
		{"NODATA", lookup.NODATA, dns.TypeA, false, []uint16{dns.ExtendedErrorCodeBlocked}},
		{"REFUSED", lookup.Refused, dns.TypeA, false, []uint16{dns.ExtendedErrorCodeBlocked}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(dns.Msg).SetQuestion("evil.example.", tc.qtype).SetEdns0(1232, false)
			if tc.structured {
				r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: option}}
			}
			p := Reply{Respond: tc.mode, IPv4: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute, Structured: Structured{Code: option}}
			m := p.Blocked(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock})
			if codes, text := codesOf(t, m); !slices.Equal(codes, tc.want) || text == "" {
				t.Errorf("Expected the codes %d with a text, got %d with %q", tc.want, codes, text)
			}
		})
	}
}

// The code 22 sent whoever debugs to the authority of the name, which was not asked.
func TestANameThatMayNotBeAskedAboutNowBlamesNoAuthority(t *testing.T) {
	for _, by := range []lookup.Decider{lookup.ByBackoff, lookup.ByLimiter, lookup.ByBudget} {
		r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA).SetEdns0(1232, false)
		m := Reply{Service: "Safe Browsing"}.Unconfirmed(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsure, By: by})
		codes, text := codesOf(t, m)
		if !slices.Equal(codes, []uint16{dns.ExtendedErrorCodeOther}) || text != "may not ask Safe Browsing about this name now" {
			t.Errorf("%s: Expected the code 0 with its text, got %d with %q", by, codes, text)
		}
	}
}

// draft-ietf-dnsop-structured-dns-error: "A server receiving an SDE option with a non-zero
// OPTION-LENGTH MUST silently ignore the OPTION-DATA".
func TestAStructuredOptionWithDataIsReadAsAnEmptyOne(t *testing.T) {
	for _, data := range [][]byte{nil, {}, {0}, []byte("some data")} {
		r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA).SetEdns0(1232, false)
		r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010, Data: data}}
		p := Reply{TTL: time.Minute, Structured: Structured{Code: 65010}}
		m := p.Blocked(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock})
		if _, text := codesOf(t, m); !strings.HasPrefix(text, "{") {
			t.Errorf("Data %q: expected JSON, got %q", data, text)
		}
	}
}

// codesOf returns the codes of the Extended DNS Errors, in their order, and the text of the
// first one.
func codesOf(t *testing.T, m *dns.Msg) (codes []uint16, text string) {
	t.Helper()
	for _, o := range m.IsEdns0().Option {
		e, ok := o.(*dns.EDNS0_EDE)
		switch {
		case ok && len(codes) == 0:
			text = e.ExtraText
		case ok && e.ExtraText != "":
			t.Errorf("Expected no text with the code %d, got %q", e.InfoCode, e.ExtraText)
		}
		if ok {
			codes = append(codes, e.InfoCode)
		}
	}
	return codes, text
}
