package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// What setup decides, without looking at the machine and without changing it:
//
//	machine, answers ──▶ place ──▶ plan

// The files of the packages.
const (
	setupFolder = "/etc/coredns-safebrowsing"
	setupLists  = "/var/lib/coredns-safebrowsing"
	setupUnit   = "coredns-safebrowsing.service"
	setupServer = "/usr/bin/coredns-safebrowsing"
)

// dnsmasqFile makes this server the only upstream of dnsmasq.
const dnsmasqFile = "/etc/dnsmasq.d/safebrowsing.conf"

// behindPort is where the server listens if another resolver has port 53.
const behindPort = 1053

// network is one that a machine has an address in.
type network struct {
	name    string // of the interface
	address netip.Addr
	prefix  netip.Prefix
	goes    bool // the address, with the prefix that a router announces: without it the server does not start
}

// holder is a process that listens on port 53.
type holder struct {
	name string     // of the program, as the kernel has it: at most 15 letters
	unit string     // of systemd; "": none
	at   netip.Addr // unspecified: all addresses
}

// machine is what setup sees.
type machine struct {
	networks  []network
	holders   []holder
	unseen    bool         // somebody else has port 53, too
	resolvers []netip.Addr // that the machine asks, without its own addresses
	servers   []string     // lines of dnsmasq's files that name resolvers for all names, as FILE: LINE
	unread    bool         // dnsmasq does not read the folder of dnsmasqFile
	firewall  string       // what opens port 53 in the one that runs here; "": none is seen
	later     []string     // such lines of files that systemd-resolved reads after the one that setup writes
	systemd   bool         // it runs, and so a unit can be restarted
	enabled   []string     // units that start with the machine
	runs      bool         // the server of the package
	hasKey    bool         // there is a key from before
	led       []front      // resolvers that ask this server behind them, by an earlier setup
	blocked   string       // a name that block.txt blocks; "": it has none, or allow.txt lets it pass
}

// publicList is a list that its makers publish, by URL. Nothing of it is shipped.
type publicList struct{ name, url, licence, about string }

// publicLists are offered to those who have no key. A plain line means that host only: so the form of
// TIF is the one of adblockers, which has all names below. URLhaus itself wants a key of its own.
var publicLists = []publicList{
	{"hagezi-tif", "https://raw.githubusercontent.com/hagezi/dns-blocklists/main/adblock/tif.txt", "GPL-3.0", "HaGeZi's Threat Intelligence Feeds: phishing, malware, scam"},
	{"urlhaus", "https://malware-filter.gitlab.io/malware-filter/urlhaus-filter-agh.txt", "CC0-1.0 and MIT", "hosts of malware from abuse.ch URLhaus, by malware-filter"},
	{"phishing-database", "https://phish.co.za/latest/phishing-domains-ACTIVE.txt", "MIT", "Phishing.Database: hosts of phishing that are active"},
}

// answers are what setup is told.
type answers struct {
	key      string // "": there is none, or the one from before stays
	endpoint string // "": Google's server
	protocol string // "": v5
	budget   string // of Web Risk: searches a day
	lists    []publicList
	networks []network // none: this machine only
	upstream []string
}

// place is where the server listens, and what happens to a resolver that has port 53.
type place struct {
	at    []netip.Addr
	port  int
	by    *holder     // the resolver that something is proposed about; nil: there is nothing to do
	says  string      // what is proposed
	stop  string      // its unit, which makes room
	file  *setupFile  // of its configuration
	unit  string      // which reads the file
	front *netip.Addr // where it then answers by this server; nil: it does not
	tells []string    // what is left to the operator
}

// has reports whether a process has port 53 of an address.
func (h *holder) has(address netip.Addr) bool { return h.at == address || h.at.IsUnspecified() }

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// placeFor returns where a server for these networks listens: on port 53, or behind the resolver that
// has it.
func placeFor(m *machine, networks []network) place {
	at := []netip.Addr{loopback}
	if len(networks) > 0 {
		at = nil
	}
	for _, n := range networks {
		at = append(at, n.address)
	}
	for i := range m.holders {
		h := &m.holders[i]
		resolved := strings.HasPrefix(h.name, "systemd-resolve")
		conflict := slices.ContainsFunc(at, h.has)
		switch {
		case resolved && len(networks) == 0:
			return behindResolved(h)
		case !conflict:
		case resolved:
			return place{
				at: at, port: 53, by: h, unit: "systemd-resolved.service",
				says: "systemd-resolved also listens on the address of your network. It stops that, and stays the resolver of this machine",
				file: resolvedFile("DNSStubListenerExtra=\n"),
			}
		case h.name == "dnsmasq" && h.unit == "dnsmasq.service":
			for _, address := range at {
				if !slices.ContainsFunc(m.holders, func(o holder) bool { return o.name == h.name && o.has(address) }) {
					p := behind(h)
					p.tells = append(p.tells, fmt.Sprintf("dnsmasq does not listen on %s: run setup for the networks that dnsmasq serves, or for the others", address))
					return p
				}
			}
			return behindDnsmasq(h, at[0])
		case strings.HasPrefix(h.name, "coredns") && h.unit != "":
			return place{at: at, port: 53, by: h, stop: h.unit, says: "Another CoreDNS has port 53. Its unit " + h.unit + " is stopped and disabled"}
		default:
			return behind(h)
		}
	}
	p := place{at: at, port: 53}
	if len(networks) == 0 {
		p.tells = []string{"On this machine, make 127.0.0.1 the only name server: in your network manager, or in /etc/resolv.conf"}
	}
	return p
}

// asksItself returns the first upstream that is the server, or asks it; "": there is none.
func asksItself(a *answers, p place) string {
	own := map[string]bool{}
	for _, address := range p.at {
		own[netip.AddrPortFrom(address, uint16(p.port)).String()] = true
	}
	if p.front != nil {
		own[netip.AddrPortFrom(*p.front, 53).String()] = true
	}
	for _, upstream := range a.upstream { // one by TLS has another port
		if own[withPort(upstream)] {
			return upstream
		}
	}
	return ""
}

// alsoAsked returns a line of a resolver's files by which it asks others than the server behind it; "": there is none.
func alsoAsked(m *machine, p place) string {
	lines := map[string][]string{"dnsmasq.service": m.servers, "systemd-resolved.service": m.later}[p.unit]
	if p.front == nil || len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// behind is the place behind a resolver that setup does not change.
func behind(h *holder) place {
	return place{
		at: []netip.Addr{loopback}, port: behindPort,
		tells: []string{fmt.Sprintf("%s keeps port 53. Make 127.0.0.1, port %d, its only upstream: \"man coredns-safebrowsing-network\" has the lines", h.name, behindPort)},
	}
}

func behindDnsmasq(h *holder, front netip.Addr) place {
	return place{
		at: []netip.Addr{loopback}, port: behindPort, front: &front, by: h, unit: h.unit,
		says: "dnsmasq has port 53. It keeps it, with DHCP and your local names, and asks this server for all others",
		file: &setupFile{path: dnsmasqFile, text: "no-resolv\n" + dnsmasqAsks, mode: 0o644},
	}
}

func behindResolved(h *holder) place {
	front := netip.AddrFrom4([4]byte{127, 0, 0, 53})
	return place{
		at: []netip.Addr{loopback}, port: behindPort, front: &front, by: h, unit: "systemd-resolved.service",
		says: "systemd-resolved is the resolver of this machine. It stays that, and asks this server",
		// An empty DNS= takes back what files before have set: else resolved asks the first that answers, and no other one.
		file: resolvedFile("DNS=\n" + resolvedAsks + "Domains=~.\nDNSSEC=no\nDNSOverTLS=no\nFallbackDNS=\n"),
	}
}

// resolvedAsks is the line by which systemd-resolved asks this server behind it.
var resolvedAsks = fmt.Sprintf("DNS=127.0.0.1:%d\n", behindPort)

// dnsmasqAsks is the line by which dnsmasq does.
var dnsmasqAsks = fmt.Sprintf("server=127.0.0.1#%d\n", behindPort)

// front is a resolver that setup can put in front of the server.
type front struct {
	unit string
	asks string     // a line of its file, by which it asks the server
	idle *setupFile // that file, when it no longer does
	tell string     // to the operator, then
}

var fronts = []front{
	{"systemd-resolved.service", resolvedAsks, resolvedFile(""), ""},
	{
		"dnsmasq.service", dnsmasqAsks,
		&setupFile{path: dnsmasqFile, text: "# safebrowsing setup: dnsmasq no longer asks the server\n", mode: 0o644},
		"dnsmasq no longer asks this server: see that it has another resolver, in /etc/resolv.conf or by server=",
	},
}

func resolvedFile(lines string) *setupFile {
	return &setupFile{path: "/etc/systemd/resolved.conf.d/safebrowsing.conf", text: "[Resolve]\n" + lines, mode: 0o644}
}

// setupFile is a file to write.
type setupFile struct {
	path, text string
	mode       fs.FileMode
	secret     bool
}

// step is one of a plan: exactly one of file, run and ask is set.
type step struct {
	file *setupFile
	run  []string
	undo []string // takes run back
	ask  *question
}

// question is one that a server must answer before the next step.
type question struct {
	at      netip.AddrPort
	name    string
	blocked bool // by a list of the operator's own; else any answer will do
}

// setupPlan is what setup does, and what is left to the operator.
type setupPlan struct {
	steps []step
	tells []string
}

// planFor returns the steps from answers to a server that is used. What others use is changed last: it
// is not touched unless the server answers.
func planFor(m *machine, a *answers, p place) setupPlan {
	var all setupPlan
	add := func(s ...step) { all.steps = append(all.steps, s...) }
	if a.key != "" {
		add(step{file: &setupFile{path: path.Join(setupFolder, "safebrowsing.key"), text: a.key + "\n", mode: 0o600, secret: true}})
	}
	corefile := path.Join(setupFolder, "Corefile")
	add(step{file: &setupFile{path: corefile, text: corefileFor(a, p), mode: 0o644}}, step{run: []string{setupServer, "-check", "-conf", corefile}})
	if m.systemd {
		if p.stop != "" {
			again := systemctl("start", p.stop)
			if slices.Contains(m.enabled, p.stop) {
				again = systemctl("enable", "--now", p.stop)
			}
			add(step{run: systemctl("disable", "--now", p.stop), undo: again})
		}
		if p.front == nil && p.file != nil { // it makes room
			add(step{file: p.file}, restart(p.unit))
		}
		enable, start := step{run: systemctl("enable", "--quiet", setupUnit)}, restart(setupUnit)
		if !slices.Contains(m.enabled, setupUnit) {
			enable.undo = systemctl("disable", "--quiet", setupUnit)
			if !m.runs { // one that is enabled, and has no process, may be about to start
				start.undo = systemctl("stop", setupUnit)
			}
		}
		add(enable, start)
		server := netip.AddrPortFrom(p.at[0], uint16(p.port))
		if m.blocked != "" {
			add(step{ask: &question{server, m.blocked, true}})
		}
		add(step{ask: &question{server, "example.com", false}}) // do the resolvers answer
	} else {
		all.tells = append(all.tells, fmt.Sprintf("systemd does not run here. Start the server: %s -conf %s", setupServer, corefile))
	}
	if p.front != nil {
		add(step{file: p.file})
		if m.systemd {
			add(restart(p.unit), step{ask: &question{netip.AddrPortFrom(*p.front, 53), "example.com", false}})
		} else {
			all.tells = append(all.tells, "Then restart "+strings.TrimSuffix(p.unit, ".service"))
		}
	}
	for _, f := range m.led {
		if m.systemd && p.port != behindPort && (p.file == nil || p.file.path != f.idle.path) { // nobody answers there any more
			again := systemctl("try-restart", f.unit)
			add(step{file: f.idle}, step{run: again, undo: again})
			if f.tell != "" {
				all.tells = append(all.tells, f.tell)
			}
		}
	}
	if a.key == "" && !m.hasKey && a.endpoint == "" && len(a.lists) == 0 {
		all.tells = append(all.tells, "Without a key and lists only the names in block.txt are blocked: run setup again with one of them")
	}
	all.tells = append(all.tells, p.tells...)
	if m.firewall != "" && len(a.networks) > 0 && p.port == 53 {
		all.tells = append(all.tells, fmt.Sprintf("A firewall runs on this machine. Open port 53: %s. Then try from another machine: dig @%s malware.example", m.firewall, p.at[0]))
	}
	all.tells = append(all.tells, routerFor(a.networks)...)
	return all
}

func systemctl(words ...string) []string { return append([]string{"systemctl"}, words...) }

// restart is a step that is repeated when the old files are back.
func restart(unit string) step {
	return step{run: systemctl("restart", unit), undo: systemctl("restart", unit)}
}

// routerFor says what to enter in the router.
func routerFor(networks []network) (tells []string) {
	if len(networks) == 0 {
		return nil
	}
	last := "In the router, announce no DNS server over IPv6: else clients ask it instead. Then reconnect the clients"
	for _, n := range networks {
		if n.address.Is6() {
			tells = append(tells, fmt.Sprintf("In the router of %s, under IPv6 or RDNSS: DNS server %s, and no second one", n.prefix, n.address))
			last = "Then reconnect the clients"
		} else {
			tells = append(tells, fmt.Sprintf("In the router of %s, under LAN or DHCP: DNS server %s, and no second one. Give this machine that address for ever there", n.prefix, n.address))
		}
	}
	return append(tells, last)
}

// corefileFor returns the Corefile. In a test CoreDNS reads it for all places.
func corefileFor(a *answers, p place) string {
	c := homeCorefile{
		comments: []string{`By "safebrowsing setup". "man coredns-safebrowsing" has all properties. After a change:`, "sudo systemctl reload coredns-safebrowsing"},
		port:     p.port, networks: []string{"127.0.0.0/8"}, forward: a.upstream,
	}
	for _, address := range p.at {
		c.bind = append(c.bind, address.String())
	}
	for _, n := range a.networks {
		c.networks = append(c.networks, n.prefix.String())
	}
	c.says("db", setupLists)
	c.says("block", path.Join(setupFolder, "block.txt"))
	c.says("allow", path.Join(setupFolder, "allow.txt"))
	c.says("keep_clients")
	share := ""
	if p.port != 53 { // one client asks for all others
		c.says("limit leaky_bucket 100 200")
		share = " 100%"
	}
	if a.endpoint != "" {
		c.says("endpoint", a.endpoint)
	}
	if a.protocol != "" {
		c.says("protocol", a.protocol)
		c.says("budget", a.budget+share, "# searches a day, at 5 US cents each")
	}
	for _, l := range a.lists {
		c.says("block", l.url, "#", l.licence)
	}
	c.says("resolver", plain(a.upstream)...) // DNS of this machine may wait for this server
	c.says("status 127.0.0.1:8053")
	c.says("explain")
	return c.String()
}

// homeCorefile is a Corefile that is made: a resolver for some networks, which forwards what passes.
type homeCorefile struct {
	comments, bind, networks, forward []string
	port                              int
	stanza                            []string // lines of the plugin's
}

// says adds a line to the stanza.
func (c *homeCorefile) says(word string, more ...string) {
	c.stanza = append(c.stanza, strings.Join(append([]string{word}, more...), " "))
}

// String returns the text.
func (c *homeCorefile) String() string {
	var b strings.Builder
	line := func(indent int, word string, more ...string) {
		b.WriteString(strings.Repeat("\t", indent) + strings.Join(append([]string{word}, more...), " ") + "\n")
	}
	for _, comment := range c.comments {
		line(0, "#", comment)
	}
	line(0, cmp.Or(map[int]string{53: "."}[c.port], fmt.Sprintf(".:%d", c.port)), "{")
	if len(c.bind) > 0 {
		line(1, "bind", c.bind...)
	}
	line(1, "acl {")
	line(2, "allow net", c.networks...)
	line(2, "block # all others: an open resolver is used in attacks")
	line(1, "}")
	line(1, "errors")
	line(1, say.Plugin, "{")
	for _, words := range c.stanza {
		line(2, words)
	}
	line(1, "}")
	line(1, "cache")
	line(1, "loop")
	line(1, "forward .", c.forward...)
	line(0, "}")
	return b.String()
}
