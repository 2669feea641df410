package answer

import (
	"cmp"
	"encoding/json"
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

const (
	adviceOnSafeBrowsing = "https://developers.google.com/safe-browsing/v4/advisory"
	adviceOnWebRisk      = "https://cloud.google.com/web-risk/docs/advisory"
)

// Each service has its name and its page of Google's words. Neither is named where
// Google does not run the server, or did not say it.
func TestEachTextNamesTheServiceAndGoogleOnlyIfItIsGoogles(t *testing.T) {
	own := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, List: "/a/own.txt"}
	for _, tc := range []struct {
		name              string
		service, advisory string
		d                 lookup.Decision
		want              string
	}{
		{"Web Risk of Google", "Web Risk", adviceOnWebRisk, phishingByGoogle, "suspected social engineering (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"Web Risk of another server", "Web Risk", "", phishingByGoogle, "suspected social engineering (Web Risk)"},
		{"Safe Browsing of Google", "Safe Browsing", adviceOnSafeBrowsing, phishingByGoogle, "suspected social engineering (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"two threats", "Web Risk", adviceOnWebRisk, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByCache, Threat: lookup.Malware, Also: lookup.Threats(0).With(lookup.SocialEngineering)}, "suspected malware, social engineering (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"an own list, with Web Risk", "Web Risk", adviceOnWebRisk, own, "blocklist own.txt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Reply{Service: tc.service, Advisory: tc.advisory}
			if got := extendedError(t, p.Blocked(t.Context(), new(test.ResponseWriter), question(), tc.d)); got != tc.want {
				t.Errorf("Expected %q, got %q", tc.want, got)
			}
			p.Structured = Structured{Code: 65010}
			r := question()
			r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
			var e structuredError
			if err := json.Unmarshal([]byte(extendedError(t, p.Blocked(t.Context(), new(test.ResponseWriter), r, tc.d))), &e); err != nil || e.Justification != tc.want {
				t.Errorf("Expected the justification %q, got %q, %v", tc.want, e.Justification, err)
			}
		})
	}
}

func TestASuspicionNamesTheServiceThatIsNotAsked(t *testing.T) {
	for _, tc := range []struct {
		by   lookup.Decider
		want string
	}{
		{lookup.ByServer, "could not ask Web Risk about this name in time"},
		{lookup.ByBackoff, "may not ask Web Risk about this name now"},
		{lookup.ByBudget, "may not ask Web Risk about this name now"},
	} {
		p := Reply{Service: "Web Risk", Advisory: adviceOnWebRisk}
		m := p.Unconfirmed(t.Context(), new(test.ResponseWriter), question(), lookup.Decision{Verdict: lookup.Unsure, By: tc.by})
		if got := extendedError(t, m); got != tc.want || m.Rcode != dns.RcodeServerFailure {
			t.Errorf("%s: Expected %q with SERVFAIL, got %q in\n%v", tc.by, tc.want, got, m)
		}
	}
}

// question is a query with EDNS.
func question() *dns.Msg {
	m := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
	m.SetEdns0(1232, false)
	return m
}

// extendedError returns the text of the Extended DNS Error, which is the only one.
func extendedError(t *testing.T, m *dns.Msg) (text string) {
	t.Helper()
	var all []string
	for _, o := range m.IsEdns0().Option {
		if e, ok := o.(*dns.EDNS0_EDE); ok {
			all = append(all, e.ExtraText)
		}
	}
	if len(all) != 1 {
		t.Fatalf("Expected one Extended DNS Error, got %q", all)
	}
	return strings.Join(all, "")
}
