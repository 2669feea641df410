package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func home() []network {
	return []network{
		{"eth0", netip.MustParseAddr("192.168.1.2"), netip.MustParsePrefix("192.168.1.0/24"), false},
		{"eth1", netip.MustParseAddr("10.0.0.2"), netip.MustParsePrefix("10.0.0.0/8"), false},
	}
}

func at(name, unit, address string) holder {
	return holder{name: name, unit: unit, at: netip.MustParseAddr(address)}
}

// placeTests are machines with a resolver of each kind.
var placeTests = []struct {
	name    string
	serve   int // how many networks
	holders []holder
	want    string
}{
	{"nobody, this machine", 0, nil, "[127.0.0.1]:53 tells"},
	{"nobody, a network", 1, nil, "[192.168.1.2]:53"},
	{"nobody, two networks", 2, nil, "[192.168.1.2 10.0.0.2]:53"},
	{"systemd-resolved, this machine", 0, []holder{at("systemd-resolve", "systemd-resolved.service", "127.0.0.53")}, "[127.0.0.1]:1053 front 127.0.0.53 /etc/systemd/resolved.conf.d/safebrowsing.conf"},
	{"systemd-resolved, a network", 1, []holder{at("systemd-resolve", "systemd-resolved.service", "127.0.0.53")}, "[192.168.1.2]:53"},
	{"systemd-resolved on the network", 1, []holder{at("systemd-resolve", "systemd-resolved.service", "192.168.1.2")}, "[192.168.1.2]:53 /etc/systemd/resolved.conf.d/safebrowsing.conf"},
	{"dnsmasq everywhere", 1, []holder{at("dnsmasq", "dnsmasq.service", "0.0.0.0")}, "[127.0.0.1]:1053 front 192.168.1.2 /etc/dnsmasq.d/safebrowsing.conf"},
	{"dnsmasq everywhere by IPv6", 0, []holder{at("dnsmasq", "dnsmasq.service", "::")}, "[127.0.0.1]:1053 front 127.0.0.1 /etc/dnsmasq.d/safebrowsing.conf"},
	{"dnsmasq of virtual machines", 1, []holder{at("dnsmasq", "libvirtd.service", "192.168.122.1")}, "[192.168.1.2]:53"},
	{"dnsmasq of another unit", 1, []holder{at("dnsmasq", "NetworkManager.service", "0.0.0.0")}, "[127.0.0.1]:1053 tells"},
	{"dnsmasq on the second network", 2, []holder{at("dnsmasq", "dnsmasq.service", "127.0.0.1"), at("dnsmasq", "dnsmasq.service", "10.0.0.2")}, "[127.0.0.1]:1053 tells"},
	{"dnsmasq on both networks", 2, []holder{at("dnsmasq", "dnsmasq.service", "10.0.0.2"), at("dnsmasq", "dnsmasq.service", "192.168.1.2")}, "[127.0.0.1]:1053 front 192.168.1.2 /etc/dnsmasq.d/safebrowsing.conf"},
	{"another CoreDNS", 1, []holder{at("coredns", "coredns.service", "::")}, "[192.168.1.2]:53 stop coredns.service"},
	{"a CoreDNS without a unit", 1, []holder{at("coredns", "", "::")}, "[127.0.0.1]:1053 tells"},
	{"a CoreDNS elsewhere", 1, []holder{at("coredns", "coredns.service", "10.0.0.2")}, "[192.168.1.2]:53"},
	{"Pi-hole", 2, []holder{at("pihole-FTL", "pihole-FTL.service", "0.0.0.0")}, "[127.0.0.1]:1053 tells"},
	{"Unbound on the second network", 2, []holder{at("unbound", "unbound.service", "10.0.0.2")}, "[127.0.0.1]:1053 tells"},
}

func TestWhereSetupPutsTheServer(t *testing.T) {
	for _, test := range placeTests {
		p := placeFor(&machine{holders: test.holders}, home()[:test.serve])
		got := fmt.Sprintf("%v:%d", p.at, p.port)
		if p.front != nil {
			got += " front " + p.front.String()
			if p.unit == "systemd-resolved.service" { // else, by a line of before, it may ask this server by TLS
				testkit.WantParts(t, p.file.text, "\nDNSOverTLS=no\n")
			}
		}
		if p.file != nil {
			got += " " + p.file.path
		}
		if p.stop != "" {
			got += " stop " + p.stop
		}
		if len(p.tells) > 0 {
			got += " tells"
		}
		expect(t, test.name, got, test.want)
		expect(t, test.name+": it proposes, and says so", p.file != nil || p.stop != "", p.by != nil && p.says != "")
	}
}

// The Corefile for each place and answer is one that the plugin reads without a warning.
func TestCorefilesOfSetupAreRead(t *testing.T) {
	t.Setenv("SAFEBROWSING_API_KEY", testkit.Key)
	dir := t.TempDir()
	for _, name := range []string{"block.txt", "allow.txt"} {
		write(t, filepath.Join(dir, name), read(t, "../../deploy/package/"+name))
	}
	for _, test := range placeTests {
		for _, a := range []answers{
			{networks: home()[:test.serve], upstream: []string{"9.9.9.9", "[2620:fe::fe]:53"}},
			{networks: home()[:test.serve], upstream: []string{"192.168.1.1"}, lists: publicLists, endpoint: "http://192.168.1.3:8099"},
			{networks: append(home()[:test.serve], uniqueLocal(ifInet6)...), upstream: []string{"tls://9.9.9.9%dns.quad9.net", "tls://2620:fe::fe%dns.quad9.net:853"}, protocol: "webrisk", budget: "200"},
		} {
			p := placeFor(&machine{holders: test.holders}, a.networks)
			text := strings.NewReplacer(setupFolder, dir, "/var/lib/coredns-safebrowsing", dir).Replace(corefileFor(&a, p))
			blocks, err := parseCorefile(testkit.Write(t, dir, "Corefile", text))
			testkit.Must(t, err)
			expect(t, test.name+": warnings", len(warningsOf(blocks)), 0)
			expect(t, test.name+": it is open", blocks[0].isOpen(), false)
			if a.budget != "" {
				expect(t, test.name+": share of the budget", blocks[0].Config.Share, map[bool]int{true: 10, false: 100}[p.port == 53])
			}
			expect(t, test.name+": own lists", len(blocks[0].Config.Own), 2+len(a.lists))
		}
	}
}

// ifInet6 has a unique local address, one by router advertisement, one that is temporary, one that is deprecated, a link-local and a
// global one.
const ifInet6 = `fd00000000000001020000fffe000002 02 40 00 80     eth0
fd00000000000003020000fffe000002 02 40 00 00     eth0
fd00000000000001abcdabcdabcdabcd 02 40 00 01     eth0
fd00000000000002abcdabcdabcdabcd 02 40 00 a0     eth0
fe80000000000000020000fffe000002 02 40 20 80     eth0
20010db8000000010200000000000002 02 40 00 80     eth0
`

// An address that stays may be entered in a router; a temporary one, or a provider's, may not.
func TestSetupServesAddressesOfIPv6ThatStay(t *testing.T) {
	want := network{"eth0", netip.MustParseAddr("fd00::1:200:ff:fe00:2"), netip.MustParsePrefix("fd00:0:0:1::/64"), false}
	goes := network{"eth0", netip.MustParseAddr("fd00::3:200:ff:fe00:2"), netip.MustParsePrefix("fd00:0:0:3::/64"), true}
	expect(t, "all", uniqueLocal(ifInet6), []network{want, goes})
	for _, line := range []string{"", "fd00 02 40 00 80 eth0", "fd00000000000001020000fffe000002 02 400 00 80 eth0", "fd00000000000001020000fffe000002 02 40 00 8x eth0"} {
		expect(t, line, uniqueLocal(line), nil)
	}
	i := newInstalled(t)
	i.networks = slices.Insert(home(), 1, want, goes)
	out := i.done("\n", withoutKey()...)
	testkit.WantParts(t, out, "Whom [1,2]", "  3  fd00:0:0:3::/64, on eth0, as fd00::3:200:ff:fe00:2, while the router announces it\n", "RDNSS: DNS server fd00::1:200:ff:fe00:2")
	testkit.WantNone(t, out, "announce no DNS server")
	testkit.WantParts(t, read(t, i.path("Corefile")), "bind 192.168.1.2 fd00::1:200:ff:fe00:2\n")
}

// Who is in a provider's network may be anybody: it is served if the operator wants it.
func TestSetupServesPrivateNetworksByDefault(t *testing.T) {
	public := network{"wan", netip.MustParseAddr("203.0.113.5"), netip.MustParsePrefix("203.0.113.0/24"), false}
	i := newInstalled(t)
	i.networks = []network{public}
	testkit.WantParts(t, i.done("\n", withoutKey()...), "Whom [0]: ")
	i.networks = append(i.networks, home()...)
	testkit.WantParts(t, i.done("\n", withoutKey()...), "Whom [2]: ")
	testkit.WantParts(t, i.done("0,1\n1\n", withoutKey()...), "no address in \"0\"", "DNS server 203.0.113.5")
}

// A key that is there may be Google's: another server gets it only if the operator says so.
func TestSetupSendsNoKeyToAnotherServerUnasked(t *testing.T) {
	for _, test := range []struct {
		hasKey       bool
		typed, flags string
		want         string // of an error; "": none
	}{
		{false, "", "", ""},
		{true, "", "", "-key-file or -no-key"},
		{true, "no\n", "", "give the key for http://192.168.1.3:8099 with -key-file, or take /etc/coredns-safebrowsing/safebrowsing.key away"},
		{true, "yes\n", "", ""},
		{true, "", "-no-key", ""},
	} {
		i := newInstalled(t)
		i.hasKey = test.hasKey
		flags := append(strings.Fields(test.flags), "-endpoint", "http://192.168.1.3:8099", "-upstream", "9.9.9.9", "-serve", "machine", "-yes")
		if test.want == "" {
			i.done(test.typed, flags...)
		} else {
			i.refused(test.typed, flags, test.want)
		}
	}
}

// Upstreams are written as *forward* reads them; our own connections ask the same machines by plain DNS.
func TestSetupForwardsByTLS(t *testing.T) {
	for text, want := range map[string]string{
		"9.9.9.9,[2620:fe::fe]:53":                "[9.9.9.9 [2620:fe::fe]:53]",
		"tls://9.9.9.9%dns.quad9.net":             "[9.9.9.9]",
		"tls://9.9.9.9%dns.quad9.net:853 1.1.1.1": "[9.9.9.9 1.1.1.1]",
		"tls://2620:fe::fe%dns.quad9.net":         "[2620:fe::fe]",
		"tls://2620:fe::fe%dns.quad9.net:8853":    "[2620:fe::fe]",
		"tls://[2620:fe::fe%dns.quad9.net]:8853":  "[2620:fe::fe]",
		"tls://[2620:fe::fe]%dns.quad9.net":       "is no address", // nor to *forward*
		"[2620:fe::fe]":                           "is no address",
		"fe80::1%eth0":                            "has a zone",
		"[fe80::1%eth0]:53":                       "has a zone",
		"tls://9.9.9.9":                           "needs the name",
		"tls://9.9.9.9%":                          "needs the name",
		"tls://dns.quad9.net%dns.quad9.net":       "is no address",
		"quad9":                                   "is no address",
		"":                                        "a resolver is needed",
	} {
		all, err := upstreams(text)
		if strings.HasSuffix(text, ":8853") { // else *forward* takes the port for a part of the name
			expect(t, text, all, []string{"tls://[2620:fe::fe%dns.quad9.net]:8853"})
		}
		got := fmt.Sprint(plain(all))
		if err != nil {
			got = err.Error()
		}
		testkit.WantParts(t, got, want)
	}
}

// The firewall of the machine itself lets the questions of setup in, and not the network's questions.
func TestSetupTellsWhatToOpenInTheFirewall(t *testing.T) {
	for _, test := range []struct{ file, text, want string }{
		{"sys/fs/cgroup/system.slice/firewalld.service/cgroup.procs", "12\n", "firewall-cmd --permanent --add-service=dns"},
		{"etc/ufw/ufw.conf", "# ufw\nENABLED=yes\n", "sudo ufw allow 53"},
		{"etc/ufw/ufw.conf", "# ufw\nENABLED=no\n", ""},
		{"etc/nftables.conf", "chain input {\n type filter hook input priority filter; policy drop;\n}\n", "th dport 53 accept"},
		{"etc/nftables.conf", "chain input {\n type filter hook input priority filter;\n}\n", ""},
	} {
		i := newInstalled(t)
		writeBelow(t, i.root, test.file, test.text)
		i.firewall = see(i.root).firewall
		for serve, want := range map[string]bool{"192.168.1.0/24": test.want != "", "machine": false} {
			out := i.done("", flagsWith(t, "-serve", serve)...)
			expect(t, fmt.Sprintf("%+v, %s", test, serve), strings.Contains(out, "firewall"), want)
			if want {
				told, _, _ := strings.Cut(out, "In the router")
				testkit.WantParts(t, told, "firewall")
				testkit.WantParts(t, out, test.want, "dig @192.168.1.2 malware.example")
			}
		}
	}
}

// writeBelow writes a file of a machine whose files are below root, and returns where it is.
func writeBelow(t *testing.T, root, path, text string) string {
	t.Helper()
	path = filepath.Join(root, path)
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, text)
	return path
}

// A machine is seen by its files: systemd-resolved with its stub, and dnsmasq for IPv6.
func TestSetupSeesResolversAndWhoHasPort53(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) { t.Helper(); writeBelow(t, root, path, text) }
	const line = "  12: %s %s 07 00000000:00000000 00:00000000 00000000   101        0 %d 2 0 0\n"
	put("proc/net/udp", "  sl  local_address rem_address st\n"+fmt.Sprintf(line, "3500007F:0035", "00000000:0000", 71)+
		fmt.Sprintf(line, "0201A8C0:0035", "0101A8C0:0035", 72)+fmt.Sprintf(line, "3500007F:0044", "00000000:0000", 73)+fmt.Sprintf(line, "00000000:0035", "00000000:0000", 75))
	put("proc/net/tcp6", fmt.Sprintf(line, "00000000000000000000000000000000:0035", "00000000000000000000000000000000:0000", 74))
	process := func(pid int, name, unit string, inodes ...int) {
		put(fmt.Sprintf("proc/%d/comm", pid), name+"\n")
		put(fmt.Sprintf("proc/%d/cgroup", pid), "0::/system.slice/"+unit+"\n")
		put(fmt.Sprintf("proc/%d/fd/0", pid), "")
		for _, inode := range inodes {
			testkit.Must(t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(root, fmt.Sprintf("proc/%d/fd/%d", pid, inode))))
		}
	}
	process(101, "systemd-resolve", "systemd-resolved.service", 71, 72, 73)
	process(102, "dnsmasq", "dnsmasq.service", 74)
	process(103, "coredns-safebro", setupUnit, 75)
	put("etc/resolv.conf", "nameserver 127.0.0.53\noptions edns0\n")
	put("run/systemd/resolve/resolv.conf", "# x\nnameserver 203.0.113.77\nnameserver fe80::1%eth0\nnameserver 203.0.113.78\n")
	put("run/systemd/system/x", "")
	put("etc/dnsmasq.conf", "#server=1.1.1.1\n server = 9.9.9.9\nserver=/lan/192.168.1.1\nserver=/x/#\nserver=/#/8.8.8.8\nresolv-file=/x\n")
	put("etc/dnsmasq.d/isp", "server=1.0.0.1#5353\n")
	put("etc/dnsmasq.d/safebrowsing.conf", "no-resolv\nserver=127.0.0.1#1053\n")
	put("etc/dnsmasq.d/safebrowsing.conf.2026-11-20-101112.000000~", "server=9.9.9.9\n")
	put("etc/coredns-safebrowsing/safebrowsing.key", " \n") // Ctrl-D before the key was pasted
	put("etc/coredns-safebrowsing/block.txt", "# a list\n*.below.example\n.allowed.example\n.allowed-there.example\n.Bücher.example # why\n")
	put("etc/coredns-safebrowsing/allow.txt", "allowed.example\n")
	put("var/lib/coredns-safebrowsing/allow.txt", "allowed-there.example\n")
	m := see(root)
	want := []holder{{"systemd-resolve", "systemd-resolved.service", netip.MustParseAddr("127.0.0.53")}, {"dnsmasq", "dnsmasq.service", netip.IPv6Unspecified()}}
	expect(t, "holders", m.holders, want)
	expect(t, "servers of dnsmasq", m.servers, []string{root + "/etc/dnsmasq.conf: server = 9.9.9.9", root + "/etc/dnsmasq.conf: server=/#/8.8.8.8", root + "/etc/dnsmasq.d/isp: server=1.0.0.1#5353"})
	expect(t, "resolvers, systemd, key, name, unseen", fmt.Sprintln(m.resolvers, m.systemd, m.hasKey, m.blocked, m.unseen), "[203.0.113.77 203.0.113.78] true false xn--bcher-kva.example false\n")
	testkit.Must(t, os.RemoveAll(filepath.Join(root, "proc/102/fd"))) // as who may not read it
	i := newInstalled(t)
	i.unseen = see(root).unseen
	testkit.WantParts(t, i.done("", flagsWith(t, "-dry-run")...), "use sudo")
	put("etc/coredns-safebrowsing/safebrowsing.key", testkit.Key+"\n")
	expect(t, "it sees the key", see(root).hasKey, true)
}
