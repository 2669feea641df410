package answer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
