package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Google's words, without which nothing of Google's may be told.
var wordsOfGoogle = []string{"suspected", "advisory provided by Google", "https://developers.google.com/safe-browsing/v4/advisory"}

var (
	phishingByGoogle = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.SocialEngineering, List: "se-4b"}
	harmfulByGoogle  = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.PotentiallyHarmfulApplication, List: "pha-4b"}
	blockedByOwn     = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, List: "/etc/coredns/own.txt"}
)

// parsed returns the JSON of a text, which must be all of it.
func parsed(t *testing.T, text string) (e structuredError) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || d.More() {
		t.Fatalf("Expected JSON, got %q: %v", text, err)
	}
	return e
}

func TestStructuredTextsLoseWordsFirstButNeverThoseOfGoogle(t *testing.T) {
	contacts := []string{"mailto:help@example.org", "tel:+1-555-0100"}
	long := []string{"mailto:" + strings.Repeat("a", 450) + "@example.org"}
	words := ofGoogle.Cause
	for _, tc := range []struct {
		name     string
		contacts []string
		d        lookup.Decision
		google   bool
		want     []structuredError // and then no text at all
	}{
		{"Google", contacts, phishingByGoogle, true, []structuredError{
			{contacts, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
			{nil, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
		}},
		{"Google, no contacts", nil, harmfulByGoogle, true, []structuredError{
			{nil, "suspected potentially harmful application (Safe Browsing)" + advisory, suberrorMalware, "en"},
		}},
		{"Google, contacts that are too long", long, phishingByGoogle, true, []structuredError{
			{nil, "suspected social engineering (Safe Browsing)" + advisory, suberrorPhishing, "en"},
		}},
		{"another server", contacts, phishingByGoogle, false, []structuredError{
			{contacts, words(phishingByGoogle), suberrorPhishing, "en"},
			{contacts, "", suberrorPhishing, ""},
			{nil, "", suberrorPhishing, ""},
		}},
		{"a list of the operator's own", contacts, blockedByOwn, true, []structuredError{
			{contacts, "blocklist own.txt", suberrorDNSOperator, "en"},
			{contacts, "", suberrorDNSOperator, ""},
			{nil, "", suberrorDNSOperator, ""},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			texts := Reply{Structured: Structured{Code: 65010, Contacts: tc.contacts}}.by(tc.google).structured(tc.d)
			if len(texts) != len(tc.want)+1 || texts[len(texts)-1] != "" {
				t.Fatalf("Expected %d texts and an empty one, got %q", len(tc.want), texts)
			}
			for i, want := range tc.want {
				got := parsed(t, texts[i])
				if !slices.Equal(got.Contacts, want.Contacts) || got.Justification != want.Justification || got.Suberror != want.Suberror || got.Language != want.Language {
					t.Errorf("Expected %+v, got %+v", want, got)
				}
			}
		})
	}
}

// nameOf returns a name of about n bytes.
func nameOf(length int) string {
	name := "x.example."
	for len(name) < length {
		label := min(63, max(1, length-len(name)-1))
		name = strings.Repeat("a", label) + "." + name
	}
	return name
}

// Over UDP the longest text that fits is sent, whatever the name and the size that
// the client takes, and never a text of Google's without Google's words.
func TestStructuredErrorsFitIntoUDP(t *testing.T) {
	for _, tc := range []struct {
		name   string
		d      lookup.Decision
		google bool
		Mode   lookup.Response
		none   bool // with the longest names there is no text at all
	}{
		{"Google", phishingByGoogle, true, lookup.NXDOMAIN, false},
		{"Google, the longest words", harmfulByGoogle, true, lookup.NXDOMAIN, true},
		{"Google, refused", harmfulByGoogle, true, lookup.Refused, false},
		{"another server", phishingByGoogle, false, lookup.NXDOMAIN, false},
		{"own list", blockedByOwn, true, lookup.NODATA, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Structured{Code: 65010, Contacts: []string{"mailto:" + strings.Repeat("a", 200) + "@example.org", "tel:+1-555-0100"}}
			p := Reply{Respond: tc.Mode, TTL: time.Minute, Structured: s}.by(tc.google)
			texts := p.structured(tc.d)
			used := make(map[string]bool)
			for _, size := range []int{512, 560, 620, 700, 1232, 4096} {
				for length := 10; length < 254; length += 9 {
					r := new(dns.Msg).SetQuestion(nameOf(length), dns.TypeA).SetEdns0(uint16(size), false)
					r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
					m := p.Blocked(t.Context(), new(test.ResponseWriter), r, tc.d)
					m.Compress = true
					raw, err := m.Pack()
					testkit.Must(t, err)
					text, bytes := m.IsEdns0().Option[0].(*dns.EDNS0_EDE).ExtraText, len(raw)
					used[text] = true
					i := slices.Index(texts, text)
					if i < 0 || bytes > size {
						t.Fatalf("Size %d, name of %d: got %d bytes with %q", size, length, bytes, text)
					}
					if i > 0 && bytes-len(text)+len(texts[i-1]) <= size {
						t.Errorf("Size %d, name of %d: got %q in %d bytes, where %q would have fitted", size, length, text, bytes, texts[i-1])
					}
					for _, word := range wordsOfGoogle {
						if tc.google && tc.d.By == lookup.ByServer && text != "" && !strings.Contains(text, word) {
							t.Errorf("Size %d, name of %d: got %q without %q", size, length, text, word)
						}
					}
				}
			}
			if !used[texts[0]] || !used[texts[1]] || used[""] != tc.none {
				t.Errorf("Expected the texts with and without contacts, and none: %v, got %v", tc.none, used)
			}
		})
	}
}

// Over QUIC, too, the server cuts an answer to the size that its client takes.
func TestAnswersOverQUICFitTheSizeOfTheClient(t *testing.T) {
	ctx := context.WithValue(t.Context(), dnsserver.Key{}, &dnsserver.Server{Addr: "quic://:853"})
	p := Reply{TTL: time.Minute, Structured: Structured{Code: 65010, Contacts: []string{"mailto:" + strings.Repeat("a", 200) + "@example.org"}}}.by(true)
	for _, option := range []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}, new(dns.EDNS0_PADDING)} {
		for length := 10; length < 254; length += 9 {
			r := new(dns.Msg).SetQuestion(nameOf(length), dns.TypeA).SetEdns0(512, false)
			r.IsEdns0().Option = []dns.EDNS0{option}
			m := p.Blocked(ctx, new(test.ResponseWriter), r, phishingByGoogle) // that writer has a client over UDP, as writers of QUIC have
			m.Truncate(512)                                                    // as the server does
			if m.Truncated || len(m.Ns) != 1 {
				t.Errorf("%T, a name of %d bytes: Expected the SOA and no TC, got %d records, TC %v", option, length, len(m.Ns), m.Truncated)
			}
		}
	}
}

// A part of Google's words would be a warning without its attribution.
func TestGooglesWordsAreWholeOrLeftOut(t *testing.T) {
	d := harmfulByGoogle
	d.Also = lookup.AllThreats
	p, seen := Reply{TTL: time.Minute}.by(true), make(map[bool]bool)
	for length := 10; length < 254; length++ {
		r := new(dns.Msg).SetQuestion(nameOf(length), dns.TypeA).SetEdns0(512, false)
		m := p.Blocked(t.Context(), new(test.ResponseWriter), r, d)
		m.Compress = true
		text := m.IsEdns0().Option[0].(*dns.EDNS0_EDE).ExtraText
		if text != "" && text != p.Reason(d) || m.Len() > 512 {
			t.Fatalf("name of %d: got %d bytes with %q", length, m.Len(), text)
		}
		seen[text == ""] = true
	}
	if !seen[true] || !seen[false] {
		t.Errorf("Expected answers with and without the words, got %v", seen)
	}
}

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

// draft-ietf-dnsop-structured-dns-error: "A server receiving an SDE option with a non-zero
// OPTION-LENGTH MUST silently ignore the OPTION-DATA".
func TestAStructuredOptionWithDataIsReadAsAnEmptyOne(t *testing.T) {
	for _, option := range []dns.EDNS0{
		&dns.EDNS0_LOCAL{Code: 65010}, &dns.EDNS0_LOCAL{Code: 65010, Data: []byte{}}, &dns.EDNS0_LOCAL{Code: 65010, Data: []byte{0}},
		&dns.EDNS0_LOCAL{Code: 65010, Data: []byte("some data")}, &dns.EDNS0_EDE{}, // of a code that the library knows
	} {
		r := question()
		r.IsEdns0().Option = []dns.EDNS0{option}
		p := Reply{TTL: time.Minute, Structured: Structured{Code: option.Option()}}
		m := p.Blocked(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock})
		if _, text := codesOf(t, m); !strings.HasPrefix(text, "{") {
			t.Errorf("Option %d, %v: expected JSON, got %q", option.Option(), option, text)
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
	allThreats := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.Malware, Also: lookup.AllThreats}
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
		{"a long name", "Safe Browsing", adviceOnSafeBrowsing, harmfulByGoogle, "suspected potentially harmful application (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"all threats", "Safe Browsing", adviceOnSafeBrowsing, allThreats, "suspected malware, social engineering, unwanted software, potentially harmful application (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"all threats of Web Risk", "Web Risk", adviceOnWebRisk, allThreats, "suspected malware, social engineering, unwanted software, potentially harmful application (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"an own list, with Web Risk", "Web Risk", adviceOnWebRisk, blockedByOwn, "blocklist own.txt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Reply{Service: tc.service, Advisory: tc.advisory}
			if codes, got := codesOf(t, p.Blocked(t.Context(), new(test.ResponseWriter), question(), tc.d)); got != tc.want || len(codes) != 1 || len(got) > maxText {
				t.Errorf("Expected %q, got %q", tc.want, got)
			}
			p.Structured = Structured{Code: 65010}
			r := question()
			r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
			codes, text := codesOf(t, p.Blocked(t.Context(), new(test.ResponseWriter), r, tc.d))
			if e := parsed(t, text); e.Justification != tc.want || len(codes) != 1 {
				t.Errorf("Expected the justification %q, got %q", tc.want, e.Justification)
			}
		})
	}
}

func TestASafeNameHasNoReason(t *testing.T) {
	if text := ofGoogle.Reason(lookup.Decision{By: lookup.ByAllow, List: "/a/own.txt"}); text != "" {
		t.Errorf("got %q", text)
	}
}

// The code 22 would send whoever debugs to the authority of the name, which was not asked.
func TestASuspicionSaysWhetherTheServiceMayBeAskedAndBlamesNoAuthority(t *testing.T) {
	for by := range lookup.NumDeciders {
		code, want := dns.ExtendedErrorCodeNetworkError, "could not ask Web Risk about this name in time"
		if by == lookup.ByBackoff || by == lookup.ByLimiter || by == lookup.ByBudget {
			code, want = dns.ExtendedErrorCodeOther, "may not ask Web Risk about this name now"
		}
		p := Reply{Service: "Web Risk", Advisory: adviceOnWebRisk}
		m := p.Unconfirmed(t.Context(), new(test.ResponseWriter), question(), lookup.Decision{Verdict: lookup.Unsure, By: by})
		if codes, got := codesOf(t, m); got != want || m.Rcode != dns.RcodeServerFailure || !slices.Equal(codes, []uint16{code}) {
			t.Errorf("%s: Expected %q by the code %d with SERVFAIL, got %q in\n%v", by, want, code, got, m)
		}
	}
}

// question is a query with EDNS.
func question() *dns.Msg {
	m := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA)
	m.SetEdns0(1232, false)
	return m
}
