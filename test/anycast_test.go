package test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// routerBird is the BIRD of the router, which hands routes on to its kernel.
const routerBird = `router id 192.168.1.1;
protocol device {}
protocol kernel { ipv4 { export all; }; }
protocol bgp node { local 192.168.1.1 as 64513; neighbor 192.168.1.2 as 64512; ipv4 { import all; export none; }; }
`

// The recipe of the page for providers, with BIRD on a node and on a router, each in a namespace: old
// lists and a relay that is away withdraw nothing, a dead forward does until it lives again.
func TestAnycastIsWithdrawnWhenDNSDoesNotWork(t *testing.T) {
	testkit.Long(t)
	for _, program := range []string{"bird", "birdc", "ip", "dnsmasq", "dig"} {
		testkit.Program(t, program)
	}
	if os.Getenv(ownNetwork) == "" {
		t.Parallel()
		inNetwork(t, allNamespaces, enterHomeNetwork, "host", "host")
		return
	}
	var dead atomic.Bool
	upstream := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if dead.Load() {
			time.Sleep(10 * time.Second)
		}
		return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(upstreamAddress)}}
	})
	ip(t, "address", "add", "192.0.2.53/32", "dev", "lo")
	instance, err := caddy.Start(input(`.:53 {
	bind 192.0.2.53
	safebrowsing {
		endpoint http://127.0.0.1:1
		db ` + t.TempDir() + `
	}
	forward . ` + upstream + ` {
		max_fails 0
	}
}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = instance.Stop() }()

	section := sectionOf(t, "docs/provider.md", "Anycast")
	dir := t.TempDir()
	if err := os.MkdirAll("/run/bird", 0o755); err != nil { // /run belongs to the namespace
		t.Fatal(err)
	}
	node := strings.NewReplacer("192.0.2.20", "192.168.1.2", "192.0.2.1 ", "192.168.1.1 ").Replace(blocks(section, "bird")[0])
	testkit.Start(t, "ip", "netns", "exec", "router", "bird", "-f", "-s", dir+"/router.ctl", "-c", testkit.Write(t, dir, "router.conf", routerBird))
	testkit.Start(t, "bird", "-f", "-c", testkit.Write(t, dir, "node.conf", node))
	testkit.Start(t, "sh", "-c", blocks(section, "sh")[0])

	announced := func() bool {
		out, _ := exec.Command("ip", "netns", "exec", "router", "ip", "route", "show", "192.0.2.53").CombinedOutput()
		return strings.Contains(string(out), "via 192.168.1.2")
	}
	testkit.Until(t, "the route", announced)
	if got := asClient("@192.0.2.53"); !strings.Contains(got, upstreamAddress) {
		t.Errorf("Expected a client to reach the address, got %s", got)
	}
	for range 5 { // no list was ever in force, and no relay answers
		if time.Sleep(time.Second); !announced() {
			t.Fatal("withdrawn without lists")
		}
	}
	dead.Store(true)
	testkit.Until(t, "the end of the route", func() bool { return !announced() })
	dead.Store(false)
	testkit.Until(t, "the route again", announced)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
