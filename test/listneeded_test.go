package test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// named returns a URL with a name instead of its address.
func named(t *testing.T, text, name string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(name, u.Port())
	return u.String()
}

// The machine's resolver is this CoreDNS, as on most routers: names of the servers of lists
// and of the endpoint are asked here. One line of a list must not keep the next version of
// that list away, nor Safe Browsing's lists.
func TestAListByURLThatBlocksItsOwnServerRepairsItself(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if q.Qtype != dns.TypeA {
			return nil
		}
		address := net.ParseIP(upstreamAddress)
		if strings.EqualFold(q.Name, "lists.example.net.") || strings.EqualFold(q.Name, "sb.example.net.") {
			address = net.IPv4(127, 0, 0, 1)
		}
		return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 1}, A: address}}
	})
	w.endpoint = named(t, w.endpoint, "sb.example.net")
	list := newListServer(t, "bad.example.org\n")
	_, port, _ := net.SplitHostPort(testkit.FreeAddress(t, w.host))
	// The server is its own resolver. A list that is fetched before it serves would wait for long.
	resolver := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		for range 200 {
			if m, err := dns.Exchange(new(dns.Msg).SetQuestion(q.Name, q.Qtype), w.host+":"+port); err == nil {
				return m.Answer
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	corefile := strings.Replace(w.corefile("block "+named(t, list.URL, "lists.example.net")+"/l.txt", "resolver "+resolver), ".:0 {", ".:"+port+" {", 1)
	corefile = strings.Replace(corefile, "\tcache\n", "", 1)
	blocked := func(name string) bool { return isBlocked(w.ask(name, dns.TypeA)) }
	// again has the list fetched at once: its state is gone, and its content stays in force.
	again := func(content string) {
		t.Helper()
		w.stop()
		w.google.ClientStarted()
		states, _ := filepath.Glob(filepath.Join(w.db, "own", "*.json"))
		for _, state := range states {
			if err := os.Remove(state); err != nil {
				t.Fatal(err)
			}
		}
		list.content.Store(&content)
		before := list.requests.Load()
		w.start(corefile)
		testkit.Until(w.t, "a request for the list", func() bool { return list.requests.Load() > before })
	}
	w.start(corefile)
	testkit.Until(w.t, "the list", func() bool { return blocked("bad.example.org.") })
	testkit.Until(w.t, "Safe Browsing's lists", func() bool { return blocked("evil.example.com.") })
	again("bad.example.org\n||example.net^\n")
	testkit.Until(w.t, "the domain of the list's own server", func() bool { return blocked("www.example.net.") })
	if blocked("lists.example.net.") || blocked("sb.example.net.") {
		t.Error("a name that the server needs is blocked")
	}
	testkit.Until(w.t, "the line about the names", func() bool {
		return len(lines.About("2 names that it has pass, because this server needs them: lists.example.net (line 2), the host of a list by URL; sb.example.net (line 2)")) > 0
	})
	again("* CNAME .\n")
	testkit.Until(w.t, "the line about the list", func() bool { return len(lines.About("line 1 blocks every name")) > 0 })
	if blocked("www.example.org.") || !blocked("bad.example.org.") || !blocked("www.example.net.") {
		t.Error("the content before is not in force")
	}
	again("bad.example.org\nother.example.org\n")
	testkit.Until(w.t, "the repair of the list", func() bool { return !blocked("www.example.net.") && blocked("other.example.org.") })
	testkit.Until(w.t, "Safe Browsing's lists after a start", func() bool { return w.ready() && blocked("evil.example.com.") })
}
