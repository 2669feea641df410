package answer

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

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

func TestGoogleIsNamedForWhatGoogleSaysOnly(t *testing.T) {
	d := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.PotentiallyHarmfulApplication}
	text := ofGoogle.Reason(d)
	if !strings.HasPrefix(text, "suspected potentially harmful application (Safe Browsing); advisory provided by Google, https://") || len(text) > maxText {
		t.Errorf("Got %q of %d bytes", text, len(text))
	}
	all := d
	all.Threat, all.Also = lookup.Malware, lookup.AllThreats
	for _, p := range []Reply{ofGoogle, {Service: "Web Risk", Advisory: adviceOnWebRisk}} {
		text := p.Reason(all)
		if !strings.HasPrefix(text, "suspected malware, social engineering, unwanted software, potentially harmful application (") || len(text) > maxText {
			t.Errorf("Got %q of %d bytes", text, len(text))
		}
	}
	for _, d := range []lookup.Decision{{By: lookup.ByBlock, List: "/a/own.txt"}} {
		if text := ofGoogle.Reason(d); strings.Contains(text, "Google") || strings.Contains(text, "Safe Browsing") {
			t.Errorf("%s: Got %q", d.By, text)
		}
	}
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

func TestAFailureToConfirmSaysWhetherTheServerMayBeAsked(t *testing.T) {
	for by := range lookup.NumDeciders {
		want := dns.ExtendedErrorCodeNetworkError
		switch by {
		case lookup.ByBackoff, lookup.ByLimiter, lookup.ByBudget:
			want = dns.ExtendedErrorCodeOther
		}
		r := new(dns.Msg).SetQuestion("evil.example.", dns.TypeA).SetEdns0(1232, false)
		m := Reply{}.Unconfirmed(t.Context(), new(test.ResponseWriter), r, lookup.Decision{Verdict: lookup.Unsure, By: by})
		if m.Rcode != dns.RcodeServerFailure || m.IsEdns0() == nil || len(m.IsEdns0().Option) != 1 {
			t.Fatalf("%s: Got\n%v", by, m)
		}
		if got := m.IsEdns0().Option[0].(*dns.EDNS0_EDE).InfoCode; got != want {
			t.Errorf("%s: Expected the error code %d, got %d", by, want, got)
		}
	}
}
