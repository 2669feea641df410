package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestWhatTheServerNeedsIsNotBlocked(t *testing.T) {
	for _, property := range []string{"unsure servfail", "inspect cname", "mode realtime", "mode nostorage", "monitor"} {
		t.Run(property, func(t *testing.T) {
			lines := testkit.Capture(t)
			w := newWorld(t)
			w.threaten("google.com/", "example.com/")
			w.google.SetMinimumWait(protocol.GlobalCache, time.Hour)
			w.google.Publish(protocol.GlobalCache, nil)
			other := fmt.Sprintf("other.example:0 {\n bind %s\n forward . dns.example.com {\n  resolver %s\n }\n}\n", w.host, w.upstream)
			w.start(w.corefile("explain", property) + other)
			if property != "mode nostorage" { // which needs no list
				w.updated(1)
			}
			for range 2 { // the second answer is decided by the cache
				for _, name := range []string{"time.google.com.", "dns.example.com."} {
					w.wantPassed(name, dns.TypeA)
					passes := func() bool {
						return len(lines.About(name+" passes, although Safe Browsing lists it (social engineering, list ")) == 1
					}
					testkit.Until(w.t, "the line about "+name, passes)
				}
			}
			if property != "monitor" {
				w.wantBlocked("www.google.com.", dns.TypeA, phishing)
				w.wantBlocked("www.example.com.", dns.TypeA, phishing)
			}
			if got := w.why("time.google.com"); !strings.Contains(got, "decided_by=allow") || !strings.Contains(got, "never blocked by Safe Browsing or a list by URL: it is a time server") {
				t.Errorf("Expected explain to say why it passes, got %q", got)
			}
			if got := lines.About("Monitor: time.google.com"); len(got) != 0 {
				t.Errorf("Expected no line that it would be blocked, got %q", got)
			}
		})
	}
}

// The answer for a needed name is not held back, and its targets pass too.
func TestATargetThatTheServerNeedsIsNotBlocked(t *testing.T) {
	w := newWorld(t)
	w.threaten("google.com/", "evil.example.net/")
	w.upstream = aliases(t, "@ 60 IN CNAME time.google.com.", "time.google.com. 60 IN A 192.0.2.7")
	w.start(w.corefile("inspect cname"))
	w.updated(1)
	w.wantPassed("clock.example.com.", dns.TypeA)
	w.stop()
	w.upstream = aliases(t, "@ 60 IN CNAME evil.example.net.", "evil.example.net. 60 IN A 192.0.2.7")
	w.start(w.corefile("inspect cname"))
	w.updated(1)
	w.wantPassed("time.cloudflare.com.", dns.TypeA)
	w.wantBlocked("clock.example.com.", dns.TypeA, phishing)
}
