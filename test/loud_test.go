package test

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAFamiliarNameThatIsListedIsLoud(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.start(w.corefile())
	w.updated(1)
	conn, err := dns.Dial("udp", w.address("udp"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 4000 {
		if _, _, err := new(dns.Client).ExchangeWithConn(new(dns.Msg).SetQuestion("www.familiar.example.net.", dns.TypeA), conn); err != nil {
			t.Fatal(err)
		}
	}
	w.wantPassed("www.familiar.example.net.", dns.TypeA)
	w.stop()
	w.threaten("evil.example.com/", "example.net/")
	w.google.ClientLostState()
	w.db = t.TempDir()
	w.start(w.corefile())
	w.updated(2)
	w.wantBlocked("www.familiar.example.net.", dns.TypeA, phishing)
	w.wantBlocked("www.rare.example.net.", dns.TypeA, phishing)
	if got := lines.About("is blocked now (suspected social engineering, list se-4b), and was asked for about "); len(got) != 1 || len(lines.About("[WARNING] plugin/safebrowsing: www.familiar.example.net is blocked now")) != 1 {
		t.Errorf("Expected one WARNING about the familiar name, got %q", got)
	}
}
