package safebrowsing

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestLogOfNamesIsBoundedAndSaysWhatItLeavesOut(t *testing.T) {
	q := dns.Question{Name: "x.example.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	d := lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock}
	for name, tc := range map[string]struct {
		monitor, json        bool
		line, left, atTheEnd string
	}{
		"log":             {false, false, "Blocked x.example. A for 192.0.2.10", "Blocked 980 more names", "Blocked 1 more name;"},
		"monitor":         {true, false, "x.example. A for 192.0.2.10 would be blocked", "Monitor: 980 more names would have been", "Monitor: 1 more name would"},
		"monitor as JSON": {true, true, `"event":"would_block","client":"192.0.2.10"`, `"event":"left_out","left_out":980}`, `"event":"left_out","left_out":1}`},
		"json":            {false, true, `"event":"blocked","client":"192.0.2.10","name":"x.example.","type":"A","cause":"malware"`, `"event":"left_out","left_out":980}`, `"event":"left_out","left_out":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			l := nameLog{monitor: tc.monitor, json: tc.json}
			now := time.Now()
			for range 1000 {
				l.log("192.0.2.10", q, d, "malware", "", "", now)
			}
			if n := len(lines.About(tc.line)); n != 20 {
				t.Errorf("Expected 20 lines, got %d", n)
			}
			for range 11 {
				l.log("192.0.2.10", q, d, "malware", "", "", now.Add(time.Second))
			}
			if n := len(lines.About(tc.line)); n != 30 {
				t.Errorf("Expected 10 lines more after a second, got %d", n-20)
			}
			if n := len(lines.About(tc.left)); n != 1 {
				t.Errorf("Expected one line about those left out, got %d", n)
			}
			l.end(now)
			l.end(now)
			if n := len(lines.About(tc.atTheEnd)); n != 1 {
				t.Errorf("Expected one line about the last one left out, got %d", n)
			}
		})
	}
}
