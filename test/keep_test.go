package test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// leadingUpstream starts a name server that invites clients to ask it directly, as public resolvers
// do (RFC 9462), and has an address for all other names.
func leadingUpstream(t testing.TB) string { return startUpstreamWith(t, leadAway) }

func leadAway(q dns.Question) []dns.RR {
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 300}
	switch {
	case q.Qtype == dns.TypeSVCB && strings.EqualFold(q.Name, "_dns.resolver.arpa."):
		return []dns.RR{&dns.SVCB{Hdr: header, Priority: 1, Target: "dns.upstream.example.", Value: []dns.SVCBKeyValue{
			&dns.SVCBAlpn{Alpn: []string{"dot"}}, &dns.SVCBPort{Port: 853}, &dns.SVCBIPv4Hint{Hint: []net.IP{net.ParseIP("192.0.2.9")}},
		}}}
	case q.Qtype == dns.TypeA:
		return []dns.RR{&dns.A{Hdr: header, A: net.ParseIP(upstreamAddress)}}
	}
	return nil
}

const designation = "_dns.resolver.arpa."

// wantKept fails unless a kept name is answered here, as kept says, or forwarded.
func (w *world) wantKept(name string, kept bool) {
	w.t.Helper()
	qtype, rcode := dns.TypeA, dns.RcodeNameError
	if name == designation {
		qtype, rcode = dns.TypeSVCB, dns.RcodeSuccess
	}
	m := w.ask(name, qtype)
	if here := m.Rcode == rcode && len(m.Answer) == 0; here != kept || !kept && len(m.Answer) == 0 {
		w.t.Errorf("%s: Expected to be answered here: %v, got\n%v", name, kept, m)
	}
}

func TestClientsAreLedAwayOnlyWhereTheCorefileSaysSo(t *testing.T) {
	for _, tc := range []struct {
		word           string
		zone, canaries bool
		line           string
	}{
		{"# no keep_clients", true, false, "Clients are kept here in part: resolver.arpa is not forwarded. keep_clients answers these here, too: use-"},
		{"keep_clients", true, true, "Clients are kept here: resolver.arpa is not forwarded; and there are no use-application-dns.net,"},
		{"keep_clients off", false, false, "keep_clients off: resolver.arpa is forwarded"},
	} {
		t.Run(strings.TrimPrefix(tc.word, "# "), func(t *testing.T) {
			lines := testkit.Capture(t)
			w := newWorld(t)
			w.upstream = leadingUpstream(t)
			w.run(tc.word, "status 127.0.0.1:0")
			w.wantKept(designation, tc.zone)
			for _, k := range answer.KeptNames[1:] {
				w.wantKept(k.Name, tc.canaries)
			}
			w.wantPassed("icloud.com.", dns.TypeA)
			w.wantPassed("www.google.com.", dns.TypeA)
			lines.Only(t, tc.line)
			w.wantLedToldAs(lines, !tc.zone)
		})
	}
}

// wantLedToldAs holds that the door, the text of status and the page say whether clients are led away.
func (w *world) wantLedToldAs(lines *testkit.Lines, led bool) {
	w.t.Helper()
	const off = "keep_clients off: resolver.arpa is forwarded"
	r := w.told()
	var text strings.Builder
	(&truth.Printer{W: &text, Tool: "safebrowsing"}).Long(&r)
	if r.Blocks[0].Led != led || strings.Contains(text.String(), off) != led {
		w.t.Errorf("Expected to be told that clients are led away: %t, got %+v and\n%s", led, r.Blocks[0], text.String())
	}
	page := w.pageURL(lines)
	if body := get(w.t, page); strings.Contains(body, off) != led {
		w.t.Errorf("Expected the page to tell that clients are led away: %t, got\n%s", led, body)
	}
	testkit.WantParts(w.t, get(w.t, page+"status.json"), fmt.Sprintf(`"led_away":%t`, led))
}

func TestKeptNamesAreCountedAndExplained(t *testing.T) {
	w := newWorld(t)
	w.upstream = leadingUpstream(t)
	w.run("keep_clients", "explain", "respond sinkhole 192.0.2.1", "block "+writeFile(t, t.TempDir(), "own.txt", "mask.icloud.com\n"))
	before := map[string]float64{}
	for _, k := range answer.KeptNames {
		before[k.Reason] = testkit.Metric(t, "kept_total", "reason", k.Reason)
	}
	w.wantKept(designation, true)
	for _, k := range answer.KeptNames[1:] {
		w.wantKept(k.Name, true) // although an own list and respond would have another answer
	}
	for reason, want := range map[string]float64{"resolver_arpa": 1, "firefox": 1, "private_relay": 2, "chrome_prefetch": 1} {
		if got := testkit.Metric(t, "kept_total", "reason", reason) - before[reason]; got != want {
			t.Errorf("Expected %v to be counted as %s, got %v", want, reason, got)
		}
	}
	testkit.WantParts(t, w.why("mask.icloud.com"), "Private Relay")
	testkit.WantParts(t, w.why("_dns.resolver.arpa"), "not forwarded")
}

// A pause ends, but a phone that was led away would not come back.
func TestAPauseLetsCanariesPassAndLeadsNoClientAway(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	w.upstream = leadingUpstream(t)
	w.recipe("docs/clients.md", "Names that keep clients here")
	w.updated(1)
	w.wantKept("mask.icloud.com.", true)
	w.paused(".", time.Hour)
	testkit.Until(w.t, "a canary to pass", func() bool { return w.ask("mask.icloud.com.", dns.TypeA).Rcode == dns.RcodeSuccess })
	w.wantKept(designation, true)
}
