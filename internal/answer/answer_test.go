package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A blocking answer is kept by clients no longer than the server's verdict holds.
func TestTTLOfABlockingAnswerEndsWithTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name         string
			ttl, expires time.Duration // expires is from now; 0: the verdict does not end
			want         uint32
		}{
			{"an own list", time.Minute, 0, 60},
			{"an own list, a TTL beyond 30 minutes", time.Hour, 0, 1800},
			{"a verdict that lasts longer", time.Minute, time.Hour, 60},
			{"a verdict that ends earlier", time.Minute, 7*time.Second + 900*time.Millisecond, 7},
			{"a verdict that ends earlier, a TTL beyond 30 minutes", time.Hour, 29 * time.Minute, 29 * 60},
			{"a verdict that has just ended", time.Minute, -time.Second, 0},
		} {
			d := lookup.Decision{Verdict: lookup.Unsafe, Threat: lookup.Malware}
			if tc.expires != 0 {
				d.Expires = time.Now().Add(tc.expires)
			}
			m := Reply{TTL: tc.ttl}.blocked(t, query("evil.example.", 1232), d)
			soa := m.Ns[0].(*dns.SOA)
			testkit.Equal(t, tc.name+": TTL and minimum", [2]uint32{soa.Hdr.Ttl, soa.Minttl}, [2]uint32{tc.want, tc.want})
		}
	})
}

// The monotonic clock stops while the machine is suspended, and the other one may be set.
func TestTTLOfABlockingAnswerEndsWithTheVerdictByBothClocks(t *testing.T) {
	now := time.Now()
	for name, received := range map[string]time.Time{
		"suspended for 20 minutes": testkit.ClockSet(now, -20*time.Minute),
		"set back by an hour":      testkit.ClockSet(now.Add(-20*time.Minute), time.Hour),
	} {
		d := lookup.Decision{Verdict: lookup.Unsafe, Threat: lookup.Malware, Expires: received.Add(30 * time.Minute)}
		testkit.Equal(t, name, (Reply{TTL: MaxTTL}).ttlOf(d, now), 10*time.Minute)
	}
}

// ofGoogle is a reply whose service is Safe Browsing, by Google.
var ofGoogle = Reply{}.by(true)

const adviceOnSafeBrowsing = "https://developers.google.com/safe-browsing/v4/advisory"
const advisory = "; advisory provided by Google, " + adviceOnSafeBrowsing

// by returns the reply where Google runs the server or somebody else does.
func (p Reply) by(google bool) Reply {
	p.Service = "Safe Browsing"
	if google {
		p.Advisory = adviceOnSafeBrowsing
	}
	return p
}

// An SOA at the query name says that the name is the apex of a zone, and so exists: dnsmasq then makes NODATA of a cached
// NXDOMAIN. RFC 8914 section 4.5 has the code 4 for an answer with forged addresses, and 15 for other response codes; the draft
// of structured errors forbids all but its own codes to clients that sent its option.
func TestEachModeHasAWordAndItsAnswer(t *testing.T) {
	const option, ok, nx, www = 65010, dns.RcodeSuccess, dns.RcodeNameError, "www.evil.example."
	blocked, forged := []uint16{dns.ExtendedErrorCodeBlocked}, []uint16{dns.ExtendedErrorCodeBlocked, dns.ExtendedErrorCodeForgedAnswer}
	for _, tc := range []struct {
		name, word, qname string
		qtype             uint16
		own               lookup.Response // of the list that blocks
		options           []dns.EDNS0
		rcode, answers    int
		soa               string // its owner; "": none
		codes             []uint16
	}{
		{"a host", "nxdomain", www, dns.TypeA, 0, nil, nx, 0, "evil.example.", blocked},
		{"a name below a TLD", "nxdomain", "evil.example.", dns.TypeA, 0, nil, nx, 0, "example.", blocked},
		{"a TLD", "nxdomain", "example.", dns.TypeA, 0, nil, nx, 0, ".", blocked},
		{"the case of the query", "nxdomain", "www.EVIL.Example.", dns.TypeA, 0, nil, nx, 0, "EVIL.Example.", blocked},
		{"a dot within a label", "nxdomain", `a\.b.evil.example.`, dns.TypeA, 0, nil, nx, 0, "evil.example.", blocked},
		{"NODATA", "nodata", www, dns.TypeA, 0, nil, ok, 0, www, blocked},
		{"NODATA of an own list", "nxdomain", www, dns.TypeA, lookup.NODATA, nil, ok, 0, www, blocked},
		{"REFUSED", "refused", "evil.example.", dns.TypeA, 0, nil, dns.RcodeRefused, 0, "", blocked},
		{"a sinkhole", "sinkhole", "evil.example.", dns.TypeA, 0, nil, ok, 1, "", forged},
		{"a sinkhole, structured", "sinkhole", "evil.example.", dns.TypeA, 0, []dns.EDNS0{&dns.EDNS0_LOCAL{Code: option}}, ok, 1, "", blocked},
		{"a sinkhole without an address of the type", "sinkhole", www, dns.TypeAAAA, 0, nil, ok, 0, www, blocked},
	} {
		mode := slices.Index(Words(), tc.word)
		p := Reply{Respond: lookup.Response(mode), IPv4: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute, Structured: Structured{Code: option}}
		r := query(tc.qname, 1232, tc.options...)
		r.Question[0].Qtype = tc.qtype
		m, soa := p.blocked(t, r, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, Response: tc.own}), ""
		if len(m.Ns) == 1 {
			soa = m.Ns[0].Header().Name
		}
		codes, text := codesOf(t, m)
		if m.Rcode != tc.rcode || len(m.Answer) != tc.answers || soa != tc.soa || !slices.Equal(codes, tc.codes) || text == "" || mode < 0 {
			t.Errorf("%s: Expected %+v, got\n%v", tc.name, tc, m)
		}
	}
	testkit.Equal(t, "words, each tested here", len(Words()), 4)
}

func TestEachKeptNameHasASourceAndIsCanonical(t *testing.T) {
	for i, k := range KeptNames {
		if !strings.HasPrefix(k.Source, "https://") || len(k.Read) != len("2026-11-25") || k.Reason == "" || k.Text == "" || len(k.Text) > maxText {
			t.Errorf("%s: Expected a source with its date, a reason and a short text, got %+v", k.Name, k)
		}
		testkit.Equal(t, "the canonical form", k.Name, dns.CanonicalName(k.Name))
		testkit.Equal(t, k.Name+": the zone of RFC 9462 comes first, then canaries", k.Canary, i > 0)
	}
}

// RFC 9462 section 6.4: NODATA for any type and any name in the zone. Firefox, Apple and Chrome take NXDOMAIN.
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
		soa := m.Ns[0].(*dns.SOA)
		testkit.Equal(t, tc.qname, []any{soa.Hdr.Name, soa.Minttl, soa.Hdr.Ttl}, []any{tc.soa, uint32(keptTTL), uint32(keptTTL)})
		codes, text := codesOf(t, m)
		testkit.Equal(t, tc.qname, codes, []uint16{tc.code})
		testkit.Equal(t, tc.qname, text, k.Text)
		plain := k.Answer(t.Context(), new(test.ResponseWriter), new(dns.Msg).SetQuestion(tc.qname, tc.qtype))
		testkit.Equal(t, tc.qname+": EDNS for a client that does not speak it", plain.IsEdns0(), nil)
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
	dot := ` dns.home.example. alpn="dot" port="853" ipv4hint="192.168.1.2" ipv6hint="fd00::2"`
	doh := ` dns.home.example. alpn="h2" port="8443" dohpath="/dns-query{?dns}"`
	for _, tc := range []struct {
		name, client, qname string
		qtype               uint16
		want                []string
		extra               int
		of                  []Designated
	}{
		{"a client of the network", "192.168.1.20", "_dns.resolver.arpa.", dns.TypeSVCB, []string{"1" + dot, "2" + doh}, 2, all},
		{"this machine", "127.0.0.1", "_dns.resolver.arpa.", dns.TypeSVCB,
			[]string{`1 dns.home.example. alpn="doq" port="853" ipv4hint="127.0.0.1"`, "2" + dot, "3" + doh}, 3, all},
		{"the case of the query", "192.168.1.20", "_DNS.Resolver.ARPA.", dns.TypeSVCB, []string{"1" + dot, "2" + doh}, 2, all},
		{"another type", "192.168.1.20", "_dns.resolver.arpa.", dns.TypeHTTPS, nil, 0, all},
		{"another name", "192.168.1.20", "resolver.arpa.", dns.TypeSVCB, nil, 0, all},
		{"none that the client can reach", "192.168.1.20", "_dns.resolver.arpa.", dns.TypeSVCB, nil, 0, all[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(dns.Msg).SetQuestion(tc.qname, tc.qtype).SetEdns0(1232, false)
			m := keptFor(tc.qname).Designate(t.Context(), &fromAddress{at: tc.client}, r, tc.of)
			if m.Rcode != dns.RcodeSuccess || len(m.Answer) != len(tc.want) || (len(m.Ns) == 1) != (tc.want == nil) {
				t.Fatalf("Expected %d records, or NODATA, got\n%v", len(tc.want), m)
			}
			for i, rr := range m.Answer {
				if got := rr.String()[len(rr.Header().String()):]; got != tc.want[i] || rr.Header().Name != tc.qname || rr.Header().Ttl != keptTTL {
					t.Errorf("Expected %s, got %v", tc.want[i], rr)
				}
			}
			testkit.Equal(t, "addresses, and OPT", len(m.Extra), tc.extra+1)
			_, err := m.Pack()
			testkit.Must(t, err)
		})
	}
}

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
			{contacts, ofGoogle.Cause(phishingByGoogle), suberrorPhishing, "en"},
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
				testkit.Equal(t, i, parsed(t, texts[i]), want)
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

// Over UDP the longest text that fits is sent, whatever the name and the client's size, and none of Google's without Google's words.
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
					r := query(nameOf(length), uint16(size), &dns.EDNS0_LOCAL{Code: 65010})
					m := p.blocked(t, r, tc.d)
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
					if tc.google && tc.d.By == lookup.ByServer && text != "" {
						testkit.WantParts(t, text, "suspected", "advisory provided by Google", adviceOnSafeBrowsing)
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
			w := new(test.ResponseWriter) // that has a client over UDP, as writers of QUIC have
			m := p.Blocked(ctx, w, query(nameOf(length), 512, option), phishingByGoogle)
			m.Truncate(512) // as the server does
			testkit.Equal(t, fmt.Sprintf("%T, a name of %d bytes: TC, and the SOA", option, length), []any{m.Truncated, len(m.Ns)}, []any{false, 1})
		}
	}
}

// A part of Google's words would be a warning without its attribution.
func TestGooglesWordsAreWholeOrLeftOut(t *testing.T) {
	d := harmfulByGoogle
	d.Also = lookup.AllThreats
	p, seen := Reply{TTL: time.Minute}.by(true), make(map[bool]bool)
	for length := 10; length < 254; length++ {
		m := p.blocked(t, query(nameOf(length), 512), d)
		m.Compress = true
		text := m.IsEdns0().Option[0].(*dns.EDNS0_EDE).ExtraText
		if text != "" && text != p.Reason(d) || m.Len() > 512 {
			t.Fatalf("name of %d: got %d bytes with %q", length, m.Len(), text)
		}
		seen[text == ""] = true
	}
	testkit.Equal(t, "answers without and with the words", seen, map[bool]bool{true: true, false: true})
}

// draft-ietf-dnsop-structured-dns-error: a server "MUST silently ignore the OPTION-DATA" of an SDE option.
func TestAStructuredOptionWithDataIsReadAsAnEmptyOne(t *testing.T) {
	for _, option := range []dns.EDNS0{
		&dns.EDNS0_LOCAL{Code: 65010}, &dns.EDNS0_LOCAL{Code: 65010, Data: []byte{}}, &dns.EDNS0_LOCAL{Code: 65010, Data: []byte{0}},
		&dns.EDNS0_LOCAL{Code: 65010, Data: []byte("some data")}, &dns.EDNS0_EDE{}, // of a code that the library knows
	} {
		p := Reply{TTL: time.Minute, Structured: Structured{Code: option.Option()}}
		m := p.blocked(t, query("evil.example.", 1232, option), lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock})
		_, text := codesOf(t, m)
		testkit.WantStart(t, text, "{")
	}
}

// blocked is Blocked for a client over UDP.
func (p Reply) blocked(t *testing.T, r *dns.Msg, d lookup.Decision) *dns.Msg {
	return p.Blocked(t.Context(), new(test.ResponseWriter), r, d)
}

// codesOf returns the codes of the Extended DNS Errors, in their order, and the text of the first one.
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

const adviceOnWebRisk = "https://cloud.google.com/web-risk/docs/advisory"

// Each service has its name and its page of Google's words. Neither is named where Google does not run the server, or did not say it.
func TestEachTextNamesTheServiceAndGoogleOnlyIfItIsGoogles(t *testing.T) {
	allThreats := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.Malware, Also: lookup.AllThreats}
	for _, tc := range []struct {
		name, service, advisory string
		d                       lookup.Decision
		want                    string
	}{
		{"Web Risk of Google", "Web Risk", adviceOnWebRisk, phishingByGoogle, "suspected social engineering (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"Web Risk of another server", "Web Risk", "", phishingByGoogle, "suspected social engineering (Web Risk)"},
		{"Safe Browsing of Google", "Safe Browsing", adviceOnSafeBrowsing, phishingByGoogle, "suspected social engineering (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"two threats", "Web Risk", adviceOnWebRisk, lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByCache, Threat: lookup.Malware, Also: lookup.Threats(0).With(lookup.SocialEngineering)}, "suspected malware, social engineering (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"a long name", "Safe Browsing", adviceOnSafeBrowsing, harmfulByGoogle, "suspected potentially harmful application (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"all threats", "Safe Browsing", adviceOnSafeBrowsing, allThreats, "suspected malware, social engineering, unwanted software, potentially harmful application (Safe Browsing); advisory provided by Google, " + adviceOnSafeBrowsing},
		{"all threats of Web Risk", "Web Risk", adviceOnWebRisk, allThreats, "suspected malware, social engineering, unwanted software, potentially harmful application (Web Risk); advisory provided by Google, " + adviceOnWebRisk},
		{"a name that passes", "Web Risk", adviceOnWebRisk, lookup.Decision{By: lookup.ByAllow, List: "/a/own.txt"}, ""},
		{"an own list, with Web Risk", "Web Risk", adviceOnWebRisk, blockedByOwn, "blocklist own.txt"},
	} {
		p := Reply{Service: tc.service, Advisory: tc.advisory}
		if codes, got := codesOf(t, p.blocked(t, query("evil.example.", 1232), tc.d)); got != tc.want || len(codes) != 1 || len(got) > maxText {
			t.Errorf("%s: Expected %q, got %q", tc.name, tc.want, got)
		}
		p.Structured = Structured{Code: 65010}
		codes, text := codesOf(t, p.blocked(t, query("evil.example.", 1232, &dns.EDNS0_LOCAL{Code: 65010}), tc.d))
		testkit.Equal(t, tc.name, []any{parsed(t, text).Justification, len(codes)}, []any{tc.want, 1})
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
		m := p.Unconfirmed(t.Context(), new(test.ResponseWriter), query("evil.example.", 1232), lookup.Decision{Verdict: lookup.Unsure, By: by})
		if codes, got := codesOf(t, m); got != want || m.Rcode != dns.RcodeServerFailure || !slices.Equal(codes, []uint16{code}) {
			t.Errorf("%s: Expected %q by the code %d with SERVFAIL, got %q in\n%v", by, want, code, got, m)
		}
	}
}

// query asks for the address of a name, as a client of EDNS that takes size bytes.
func query(qname string, size uint16, options ...dns.EDNS0) *dns.Msg {
	m := new(dns.Msg).SetQuestion(qname, dns.TypeA).SetEdns0(size, false)
	m.IsEdns0().Option = options
	return m
}
