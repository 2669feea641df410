package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// This file has what only the whole Corefile shows: in setup a plugin sees its own stanza.

// Listening says where a server block listens.
type Listening struct {
	Listeners []Listener // one for each zone
	Bind      []string   // addresses and interfaces; none: all
	except    []string   // addresses of these interfaces that are left out
}

// Listener is one zone of a server block, with the transport and the port where it listens.
type Listener struct{ Zone, Transport, Port string }

// ports are the usual ones of transports, unless a key names another one. Plain DNS has the flag -dns.port's.
var ports = map[string]string{
	transport.TLS: transport.TLSPort, transport.QUIC: transport.QUICPort,
	transport.GRPC: transport.GRPCPort, transport.HTTPS: transport.HTTPSPort, transport.HTTPS3: transport.HTTPSPort,
}

// ListeningOf returns where a server block listens.
func ListeningOf(b caddyfile.ServerBlock) (l Listening) {
	for _, key := range b.Keys {
		scheme, rest := parse.Transport(key)
		_, port, err := plugin.SplitHostPort(rest)
		if err != nil {
			continue
		}
		for _, zone := range plugin.Host(key).NormalizeExact() {
			l.Listeners = append(l.Listeners, Listener{zone, scheme, cmp.Or(port, ports[scheme], dnsserver.Port)})
		}
	}
	for d := caddyfile.NewDispenserTokens("", b.Tokens["bind"]); d.Next(); {
		words := d.RemainingArgs()
		for d.NextBlock() { // except
			except := d.RemainingArgs()
			words = slices.DeleteFunc(words, func(word string) bool { return slices.Contains(except, word) })
			l.except = append(l.except, except...)
		}
		l.Bind = append(l.Bind, words...)
	}
	return l
}

// At reports whether the block listens for plain DNS at an address of this machine.
func (l Listening) At(address netip.Addr, port uint16) bool {
	listens := slices.ContainsFunc(l.Listeners, func(l Listener) bool {
		return l.Transport == transport.DNS && l.Port == fmt.Sprint(port)
	})
	return listens && (len(l.Bind) == 0 || slices.ContainsFunc(l.Bind, func(word string) bool {
		bound, err := netip.ParseAddr(word)
		return err != nil && hasAddress(word, address) && !slices.Contains(l.except, address.String()) || bound.IsUnspecified() || bound.Unmap() == address
	}))
}

// hasAddress reports whether an interface of this machine has an address. One that is not known may have any.
func hasAddress(name string, address netip.Addr) bool {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return true
	}
	all, err := i.Addrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == address
	})
}

// MachineAddresses returns the addresses of this machine.
func MachineAddresses() (all []netip.Addr) {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, prefix.Addr())
		}
	}
	return all
}

// ResolvConf names the system's resolvers.
const ResolvConf = "/etc/resolv.conf"

// SystemResolvers returns the system's resolvers as "address:port", from a file such as
// /etc/resolv.conf. It returns none if it cannot read the file.
func SystemResolvers(resolvConf string) (all []string) {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil
	}
	for _, server := range conf.Servers {
		all = append(all, net.JoinHostPort(server, conf.Port))
	}
	return all
}

// LocalResolver returns the address of a resolver, given as "address:port", and whether
// that is one of this machine.
func LocalResolver(resolver string, machine []netip.Addr) (at netip.AddrPort, local bool) {
	at, err := netip.ParseAddrPort(resolver)
	if err != nil {
		return at, false
	}
	address := at.Addr().Unmap().WithZone("")
	return netip.AddrPortFrom(address, at.Port()), address.IsLoopback() || address.IsUnspecified() || slices.Contains(machine, address)
}

// LoopWarning returns a warning if the names of the servers are resolved where this Corefile
// listens, else "": the server would need its own answers before it gives any. system are
// the system's resolvers, which are asked unless the stanza has resolver.
func (c *Config) LoopWarning(blocks []caddyfile.ServerBlock, system []string, machine []netip.Addr) string {
	resolvers, advice := strings.Fields(c.Resolvers), "Name another one"
	if len(resolvers) == 0 {
		resolvers, advice = system, "Write resolver and an address, such as resolver 9.9.9.9"
	}
	if !c.asksByName() {
		return ""
	}
	for _, r := range resolvers {
		at, local := LocalResolver(r, machine)
		if local && slices.ContainsFunc(blocks, func(b caddyfile.ServerBlock) bool { return ListeningOf(b).At(at.Addr(), at.Port()) }) {
			return fmt.Sprintf("The names of the servers that lists come from are resolved by %s, where this Corefile listens: CoreDNS needs its own answer to fetch them. %s", r, advice)
		}
	}
	return ""
}

// asksByName reports whether the address of a server has to be resolved.
func (c *Config) asksByName() bool {
	var urls []string
	if c.Online {
		if c.Endpoint == "" { // Google's
			return true
		}
		urls = strings.Fields(c.Endpoint)
	}
	for _, f := range c.Fetches() {
		urls = append(urls, f.URL)
	}
	return slices.ContainsFunc(urls, func(text string) bool {
		u, err := url.Parse(text)
		if err != nil {
			return false
		}
		_, notAddress := netip.ParseAddr(u.Hostname())
		return notAddress != nil
	})
}

// HiddenViews returns a warning for each server block with a view and the plugin that no
// query reaches. file is the Corefile.
func HiddenViews(file string, blocks []caddyfile.ServerBlock) (warnings []string) {
	for i := range blocks {
		if warning := HiddenView(file, blocks, i); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// HiddenView returns the warning about one of the server blocks, or "": of blocks for one
// zone CoreDNS asks the first one that has no view or whose view is true.
func HiddenView(file string, blocks []caddyfile.ServerBlock, i int) string {
	view, ours := blocks[i].Tokens["view"], blocks[i].Tokens[say.Plugin]
	if len(view) < 2 || len(ours) == 0 {
		return ""
	}
	for _, before := range blocks[:i] {
		if zone, hides := hides(before, blocks[i]); hides {
			return fmt.Sprintf("%s:%d: view %s never matches for the zone %s: a server block without a view is before it and answers all clients; move that block to the end",
				cmp.Or(view[0].File, file), view[0].Line, view[1].Text, zone)
		}
	}
	return ""
}

// hides returns a zone for which a server block without view answers instead of another.
func hides(before, block caddyfile.ServerBlock) (zone string, ok bool) {
	if len(before.Tokens["view"]) > 0 {
		return "", false
	}
	first, second := ListeningOf(before), ListeningOf(block)
	if !slices.Equal(slices.Sorted(slices.Values(first.Bind)), slices.Sorted(slices.Values(second.Bind))) { // other sockets
		return "", false
	}
	for _, l := range second.Listeners {
		if slices.Contains(first.Listeners, l) {
			return l.Zone, true
		}
	}
	return "", false
}

// ForwardTargets returns the hosts that forward and grpc name in a Corefile, instead of an
// address: CoreDNS resolves these itself.
func ForwardTargets(blocks []caddyfile.ServerBlock) (hosts []string) {
	for _, b := range blocks {
		for _, args := range Forwards(b) {
			for _, to := range args[1:] {
				if host := hostOfTarget(to); host != "" {
					hosts = append(hosts, host)
				}
			}
		}
	}
	return hosts
}

// Forwards returns the arguments of forward and grpc in a server block: a zone, and its targets.
func Forwards(b caddyfile.ServerBlock) (all [][]string) {
	for _, plugin := range []string{"forward", "grpc"} {
		d := caddyfile.NewDispenserTokens("", b.Tokens[plugin])
		for d.Next() {
			if args := d.RemainingArgs(); len(args) > 1 {
				all = append(all, args)
			}
			for d.NextBlock() {
				d.RemainingArgs()
			}
		}
	}
	return all
}

// hostOfTarget returns the host of a target such as tls://dns.example.org:853, or "" if it is
// an address or a file.
func hostOfTarget(to string) string {
	_, host := parse.Transport(to)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host, _, _ = strings.Cut(host, "%") // the name in the certificate
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || strings.Contains(host, "/") {
		return ""
	}
	return host
}

// proxyVariables are what net/http reads, see http.ProxyFromEnvironment.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}

// proxyTrouble returns what is wrong with the proxies of the environment, or "". net/http goes
// without a proxy that it cannot read, and says nothing. The value may hold a password, and is
// not told.
func proxyTrouble() string {
	for _, name := range proxyVariables {
		value := os.Getenv(name)
		if value == "" || isProxy(value) || !strings.Contains(value, "://") && isProxy("http://"+value) {
			continue
		}
		return fmt.Sprintf("$%s is not the URL of a proxy, such as http://proxy.example.org:3128: it is ignored, and servers are asked directly", name)
	}
	return ""
}

// isProxy reports whether net/http takes a text for a proxy.
func isProxy(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return false
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https", "socks5", "socks5h":
		return true
	}
	return false
}
