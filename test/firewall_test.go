package test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// enterHomeNetwork gives a command a network with a client, a router and a name server outside, each in a
// namespace. Its first argument says where the command is: on the router, or on a host beside the client. The name
// server also listens on the ports of DNS over TLS and HTTPS, in the clear: a firewall sees no more than ports.
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
if [ "$1" = host ]; then
	ip link add eth0 type veth peer name host netns router
	ip address add 192.168.1.2/24 dev eth0
	ip address add fd00::2/64 dev eth0 nodad
	ip link set eth0 up
	ip route add default via 192.168.1.1
	ip route add default via fd00::1
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
ip -n client address add 192.168.1.20/24 dev eth0
ip -n client address add fd00::20/64 dev eth0 nodad
ip -n client link set eth0 up
ip -n client route add default via 192.168.1.1
ip -n client route add default via fd00::1
ip -n outside address add 198.51.100.53/24 dev eth0
ip -n outside address add 2001:db8::53/64 dev eth0 nodad
ip -n outside link set eth0 up
ip -n outside route add default via 198.51.100.1
ip -n outside route add default via 2001:db8::1
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
	w.start(strings.Replace(w.corefile(blockList(t, "blocked.example")), ".:0 {", ".:53 {", 1))
	w.updated(1)
	w.wantBlocked("blocked.example.", dns.TypeA, byOwn)
	const others, blocked, none = "203.0.113.99", "status: NXDOMAIN", ""
	for _, what := range []string{"@198.51.100.53", "+tcp @198.51.100.53", "@2001:db8::53", "-p 853 +tcp @198.51.100.53"} {
		testkit.Until(t, what+" without rules", func() bool { return strings.Contains(asClient(what), others) }) // IPv6 finds its neighbours first
	}
	rules := blocks(documents(t)["docs/clients.md"], "nft")
	if len(rules) != 1 {
		t.Fatalf("Expected the rules, got %q", rules)
	}
	load := exec.Command("nft", "-f", "-")
	if on == "host" {
		load = exec.Command("ip", "netns", "exec", "router", "nft", "-f", "-")
	}
	load.Stdin = strings.NewReader("table inet dns {\n" + strings.ReplaceAll(rules[0], "192.168.1.2", w.host) + "}\n")
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
		if !strings.Contains(string(out), others) {
			t.Errorf("%s from here: %s", what, out)
		}
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
