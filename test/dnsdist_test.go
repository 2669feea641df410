package test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	protectedLine = "127.0.0.2"
	otherLine     = "127.0.0.3"
)

// The two configurations of the page for providers: dnsdist with its packet cache in front of two
// servers. A name that is listed is blocked for lines that are protected when its TTL has ended, and for
// others never; a verdict that has ended blocks nobody.
func TestDnsdistKeepsLinesApart(t *testing.T) {
	testkit.Long(t)
	program := testkit.Program(t, "dnsdist")
	if !apart(t) {
		return
	}
	const ttl = 2
	w := newWorld(t)
	w.google.SetMinimumWait("se-4b", time.Second)
	w.google.SetCacheDuration(ttl * time.Second)
	w.threaten("known.example.com/")
	upstream := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.ParseIP(upstreamAddress)}}
	})
	section := sectionOf(t, "docs/provider.md", "Who is protected")
	nodes := []string{testkit.FreeAddr(t), testkit.FreeAddr(t)}
	front := testkit.FreeAddr(t)

	page := blocks(section, "corefile")[0]
	service := page[strings.Index(page, "    safebrowsing {\n"):strings.Index(page, "    cache\n")]
	stanza := w.corefile("lists se-4b")
	stanza = stanza[strings.Index(stanza, "\tsafebrowsing {"):strings.Index(stanza, "\tcache")]
	corefile := ""
	for _, node := range nodes {
		_, port, _ := net.SplitHostPort(node)
		corefile += strings.NewReplacer(service, stanza, "bind 192.0.2.20", "bind 127.0.0.1", "192.0.2.10/32", "127.0.0.0/8", "9.9.9.9", upstream, ". {\n", ".:"+port+" {\n").Replace(page)
	}
	w.begin(corefile)
	config := strings.NewReplacer("192.0.2.10:53", front, "192.0.2.20:53", nodes[0], "192.0.2.21:53", nodes[1],
		`addMask("198.51.100.0/24")`, `addMask("`+protectedLine+`")`, `"198.51.100.0/24", "203.0.113.0/24"`, `"127.0.0.0/8"`).Replace(blocks(section, "lua")[0])
	testkit.Start(t, program, "--supervised", "-C", testkit.Write(t, t.TempDir(), "dnsdist.conf", config))

	blocked := func(line, name string) bool {
		c := dns.Client{Timeout: 2 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(line)}}}
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA).SetEdns0(1232, false), front)
		if err != nil {
			return false
		}
		for _, rr := range m.Ns {
			if isBlocked(m) && rr.Header().Ttl > ttl {
				t.Errorf("%s: Expected a TTL of %d at most, got\n%v", name, ttl, m)
			}
		}
		if line == otherLine && isBlocked(m) {
			t.Errorf("%s: Expected that it passes for a line that is not protected, got\n%v", name, m)
		}
		return isBlocked(m)
	}
	testkit.Until(t, "a listed name to be blocked", func() bool { return blocked(protectedLine, "known.example.com.") })
	blocked(otherLine, "known.example.com.")
	for range 2 { // the second one is from the packet cache
		if blocked(protectedLine, "late.example.com.") || blocked(otherLine, "late.example.com.") {
			t.Error("Expected a name that is not listed to pass")
		}
	}
	w.publish("se-4b", "known.example.com/", "late.example.com/")
	w.google.AddThreat("late.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	testkit.Until(t, "the new list", func() bool { return isBlocked(askBehindProxy(t, nodes[0], "\xe0\x00\x01\x01", "late.example.com.")) })
	listed := time.Now()
	for !blocked(protectedLine, "late.example.com.") {
		if blocked(otherLine, "late.example.com."); time.Since(listed) > time.Minute {
			t.Fatal("Expected the name to be blocked behind the packet cache")
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("blocked behind the packet cache %s after it was in front of it", time.Since(listed).Round(10*time.Millisecond))
	blocked(otherLine, "late.example.com.")
	w.google.RemoveThreat("late.example.com/")
	testkit.Until(t, "the verdict to end", func() bool { return !blocked(protectedLine, "late.example.com.") })
	testkit.Until(t, "the other listed name to stay blocked", func() bool { return blocked(protectedLine, "known.example.com.") })
	blocked(otherLine, "known.example.com.")
}
