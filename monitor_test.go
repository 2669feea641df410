package safebrowsing

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestLogOfNamesIsBoundedAndSaysWhatItLeavesOut(t *testing.T) {
	q := dns.Question{Name: "x.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	d := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByTest}
	for name, tc := range map[string]struct {
		monitor              bool
		line, left, atTheEnd string
	}{
		"log":     {false, "Blocked x.example. A for 192.0.2.10", "Blocked 980 more names", "Blocked 1 more name;"},
		"monitor": {true, "x.example. A for 192.0.2.10 would be blocked", "Monitor: 980 more names would have been", "Monitor: 1 more name would"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := logtest.Capture(t)
			var l nameLog
			now := time.Now()
			for range 1000 {
				l.log(tc.monitor, "192.0.2.10", q, d, "malware", now)
			}
			if n := len(lines.About(tc.line)); n != 20 {
				t.Errorf("Expected 20 lines, got %d", n)
			}
			for range 11 {
				l.log(tc.monitor, "192.0.2.10", q, d, "malware", now.Add(time.Second))
			}
			if n := len(lines.About(tc.line)); n != 30 {
				t.Errorf("Expected 10 lines more after a second, got %d", n-20)
			}
			if n := len(lines.About(tc.left)); n != 1 {
				t.Errorf("Expected one line about those left out, got %d", n)
			}
			l.end(tc.monitor)
			l.end(tc.monitor)
			if n := len(lines.About(tc.atTheEnd)); n != 1 {
				t.Errorf("Expected one line about the last one left out, got %d", n)
			}
		})
	}
}
