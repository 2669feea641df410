package test

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// enterHomeNetwork gives a command a network with a client, a router and a name server outside, each in a namespace. Its first argument
// says where the command is. The name server also listens on the ports of encrypted DNS, in the clear: a firewall sees only ports.
const enterHomeNetwork = `set -e
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir /run/netns
for name in client outside router; do
	ip netns add $name
	ip -n $name link set lo up
done
router() { ip netns exec router "$@"; }
[ "$1" = host ] || router() { "$@"; }
router ip link add br-lan type bridge
to=router
[ "$1" = host ] || to=$$
ip -n client link add eth0 type veth peer name client netns $to
ip -n outside link add eth0 type veth peer name wan netns $to
connect() { # command, addresses, and the router's
	$1 address add $2 dev eth0
	$1 address add $3 dev eth0 nodad
	$1 link set eth0 up
	$1 route add default via $4
	$1 route add default via $5
}
if [ "$1" = host ]; then
	ip link add eth0 type veth peer name host netns router
	connect ip 192.168.1.2/24 fd00::2/64 192.168.1.1 fd00::1
	router ip link set host master br-lan up
fi
router ip link set client master br-lan up
router ip address add 192.168.1.1/24 dev br-lan
router ip address add fd00::1/64 dev br-lan nodad
router ip link set br-lan up
router ip address add 198.51.100.1/24 dev wan
router ip address add 2001:db8::1/64 dev wan nodad
router ip link set wan up
router sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
connect "ip -n client" 192.168.1.20/24 fd00::20/64 192.168.1.1 fd00::1
connect "ip -n outside" 198.51.100.53/24 2001:db8::53/64 198.51.100.1 2001:db8::1
for port in 53 443 853; do
	ip netns exec outside dnsmasq --conf-file=/dev/null --no-resolv --no-hosts --user=root --pid-file= --bind-interfaces \
		--listen-address=198.51.100.53 --listen-address=2001:db8::53 --port=$port --address=/#/203.0.113.99 --address=/#/2001:db8::99
done
shift
exec "$@"`

// The rules of docs/clients.md, on a router that has CoreDNS and on one beside it: queries to other name servers
// end here, and encrypted ones are refused.
func TestTheFirewallKeepsQueriesHere(t *testing.T) {
	testkit.Long(t)
	for _, program := range []string{"nft", "ip", "dnsmasq", "dig"} {
		testkit.Program(t, program)
	}
	on := os.Getenv(ownNetwork)
	if on == "" {
		t.Parallel()
		for _, on := range []string{"router", "host"} {
			inNetwork(t, allNamespaces, enterHomeNetwork, on, on)
		}
		return
	}
	w := newWorld(t)
	w.host = map[string]string{"router": "192.168.1.1", "host": "192.168.1.2"}[on]
	w.serve(strings.Replace(w.corefile(blockList(t, "blocked.example")), ".:0 {", ".:53 {", 1))
	w.wantBlocked("blocked.example.", dns.TypeA, byOwn)
	const others, blocked, none = "203.0.113.99", "status: NXDOMAIN", ""
	for _, what := range []string{"@198.51.100.53", "+tcp @198.51.100.53", "@2001:db8::53", "-p 853 +tcp @198.51.100.53"} {
		testkit.Until(t, what+" without rules", func() bool { return strings.Contains(asClient(what), others) }) // IPv6 finds its neighbours first
	}
	rules := onlyBlock(t, documents(t)["docs/clients.md"], "nft")
	load := exec.Command("nft", "-f", "-")
	if on == "host" {
		load = exec.Command("ip", "netns", "exec", "router", "nft", "-f", "-")
	}
	load.Stdin = strings.NewReader("table inet dns {\n" + strings.ReplaceAll(rules, "192.168.1.2", w.host) + "}\n")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for what, want := range map[string]string{
		"@" + w.host:                 blocked,
		"+tcp @" + w.host:            blocked,
		"@198.51.100.53":             blocked,
		"+tcp @198.51.100.53":        blocked,
		"-p 853 @198.51.100.53":      none, // DNS over QUIC
		"-p 853 +tcp @198.51.100.53": none, // over TLS
		"@2001:db8::53":              none,
		"+tcp @2001:db8::53":         none,
		"-p 853 +tcp @2001:db8::53":  none,
		"-p 443 +tcp @198.51.100.53": others, // over HTTPS: as any web site
	} {
		got := asClient(what)
		if want == none && (strings.Contains(got, "status:") || strings.Contains(got, others)) || !strings.Contains(got, want) {
			t.Errorf("%s: Expected %q, got %s", what, want, got)
		}
	}
	for _, what := range []string{"@198.51.100.53", "-p 853 +tcp @198.51.100.53", "@2001:db8::53"} { // as this server asks others
		out, _ := exec.Command("dig", digArgs(what)...).CombinedOutput()
		testkit.WantParts(t, what+" from here: "+string(out), others)
	}
}

func digArgs(what string) []string {
	return append([]string{"+noall", "+comments", "+answer", "+tries=1", "+time=3", "blocked.example", "A"}, strings.Fields(what)...)
}

// asClient asks from the namespace of the client.
func asClient(what string) string {
	out, _ := exec.Command("ip", append([]string{"netns", "exec", "client", "dig"}, digArgs(what)...)...).CombinedOutput() // it fails without an answer
	return string(out)
}

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
	inShell(t, "ip", "address", "add", "192.0.2.53/32", "dev", "lo")
	startInstance(t, `.:53 {
	bind 192.0.2.53
	safebrowsing {
		endpoint http://127.0.0.1:1
		db `+t.TempDir()+`
	}
	forward . `+upstream+` {
		max_fails 0
	}
}`)
	section := sectionOf(t, "docs/provider.md", "Anycast")
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll("/run/bird", 0o755)) // /run belongs to the namespace
	node := strings.NewReplacer("192.0.2.20", "192.168.1.2", "192.0.2.1 ", "192.168.1.1 ").Replace(blocks(section, "bird")[0])
	testkit.Start(t, "ip", "netns", "exec", "router", "bird", "-f", "-s", dir+"/router.ctl", "-c", testkit.Write(t, dir, "router.conf", routerBird))
	testkit.Start(t, "bird", "-f", "-c", testkit.Write(t, dir, "node.conf", node))
	testkit.Start(t, "sh", "-c", blocks(section, "sh")[0])

	announced := func() bool {
		out, _ := exec.Command("ip", "netns", "exec", "router", "ip", "route", "show", "192.0.2.53").CombinedOutput()
		return strings.Contains(string(out), "via 192.168.1.2")
	}
	testkit.Until(t, "the route", announced)
	testkit.WantParts(t, asClient("@192.0.2.53"), upstreamAddress)
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

var routeAfter = flag.Duration("route.after", 5*time.Second, "how long TestARouterIsProtectedSoonAfterItsRouteIsThere waits before it adds the route")

// routeWithin is how long after the route the first threat must be blocked.
const routeWithin = time.Minute

// enterWithoutRoute gives a command a network with no more than the loopback interface.
const enterWithoutRoute = `set -e
ip link set lo up
shift
exec "$@"`

// A router: the server starts before there is a route to Google, or to a name server. When the
// route comes, the first threat is blocked within a minute. The time is logged.
func TestARouterIsProtectedSoonAfterItsRouteIsThere(t *testing.T) {
	testkit.Long(t)
	if os.Getenv(ownNetwork) == "" {
		t.Parallel()
		timeout := *routeAfter + routeWithin + time.Minute
		out := inNetwork(t, []string{"--net"}, enterWithoutRoute, "", "true", "-test.timeout="+timeout.String(), "-route.after="+routeAfter.String())
		_, told, _ := strings.Cut(out, "time to protection: ")
		told, _, _ = strings.Cut(told, "\n")
		t.Log("time to protection: " + told)
		return
	}
	w := threatened(t, "evil.example.net/")
	w.endpoint = behindRoute(t, w)
	names := nameServerBehindRoute(t)
	w.start(w.corefile("resolver " + names))
	w.wantPassed("evil.example.net.", dns.TypeA)
	time.Sleep(*routeAfter)
	w.wantPassed("evil.example.net.", dns.TypeA)
	inShell(t, "ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
	came := time.Now()
	for !isBlocked(w.ask("evil.example.net.", dns.TypeA)) {
		if time.Since(came) > routeWithin {
			t.Fatalf("not protected %s after the route", routeWithin)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("time to protection: %s after the route, which came %s after the server", time.Since(came).Round(100*time.Millisecond), *routeAfter)
}

// behindRoute returns the URL of the world's server at an address to which there is no route yet.
func behindRoute(t *testing.T, w *world) string {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go http.Serve(l, w.google)
	return fmt.Sprintf("http://safebrowsing.example:%d", l.Addr().(*net.TCPAddr).Port)
}

// nameServerBehindRoute returns the address of a name server to which there is no route yet. It
// knows that all names are there.
func nameServerBehindRoute(t *testing.T) string {
	conn, err := net.ListenPacket("udp", "0.0.0.0:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if q := r.Question[0]; q.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass, Ttl: 1}, A: net.IPv4(198, 51, 100, 7)}}
		}
		w.WriteMsg(m)
	})}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	return fmt.Sprintf("198.51.100.53:%d", conn.LocalAddr().(*net.UDPAddr).Port)
}
