package config

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin/pkg/parse"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Needed holds the names that this server or its clients cannot do without, each with what
// it is. Safe Browsing and lists by URL do not block them, the operator's own files may.
// Google's lists and published ones have held such names by mistake. The map has canonical names, without a final dot. It must
// not be changed while it is in use.
type Needed map[string]string

// poolZone is the zone of the NTP pool. Distributions have names of their own below it:
// https://www.ntppool.org/en/vendors.html.
const poolZone = "pool.ntp.org"

const timeServer = "a time server: DNSSEC and TLS need the clock"

// timeServers are those that operating systems ask unless told otherwise, and the large
// public ones.
var timeServers = []string{
	poolZone,
	"time.google.com", "time1.google.com", "time2.google.com", "time3.google.com", "time4.google.com", // https://developers.google.com/time
	"time.android.com",    // https://source.android.com/docs/core/connect/time/network-time-detection
	"time.cloudflare.com", // https://www.cloudflare.com/time/
	"time.windows.com",    // https://learn.microsoft.com/windows-server/networking/windows-time-service/
	"time.apple.com",      // https://support.apple.com/guide/mac-help/mchlp2996/mac
	"ntp.ubuntu.com",      // https://documentation.ubuntu.com/server/how-to/networking/timedatectl-and-timesyncd/
	"time.nist.gov",       // https://www.nist.gov/pml/time-and-frequency-division/time-distribution/internet-time-service-its
}

// NeededBy returns the needed names of the server blocks of a Corefile: the hosts of their
// endpoints and of their lists by URL, the proxies on the way to these, the time servers, and
// the names of the targets of forwarding.
func NeededBy(all []*Config, targets []string) Needed {
	n := make(Needed)
	add := func(name, what string) {
		if h, ok := lookup.ParseHost(name); ok {
			n[h.String()] = what
		}
	}
	addURL := func(text, what string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
			add(proxy.Hostname(), "the proxy")
		}
		add(u.Hostname(), what)
	}
	for _, name := range timeServers {
		add(name, timeServer)
	}
	for _, name := range targets {
		add(name, "a server that this server forwards queries to")
	}
	for _, c := range all {
		for _, own := range c.Own {
			addURL(own.Fetch.URL, "the host of a list by URL")
		}
	}
	for _, c := range all {
		if !c.Online {
			continue
		}
		for _, endpoint := range c.Endpoints() {
			addURL(endpoint, "the host of the endpoint")
		}
	}
	return n
}

// What returns what a host is needed for, or "".
func (n Needed) What(h lookup.Host) string {
	name := h.String()
	if what := n[name]; what != "" {
		return what
	}
	if strings.HasSuffix(name, "."+poolZone) {
		return n[poolZone]
	}
	return ""
}

// ForwardTargets returns the hosts that forward and grpc name in a Corefile, in place of an
// address: CoreDNS resolves these itself.
func ForwardTargets(blocks []caddyfile.ServerBlock) (hosts []string) {
	for _, b := range blocks {
		for _, plugin := range []string{"forward", "grpc"} {
			d := caddyfile.NewDispenserTokens("", b.Tokens[plugin])
			for d.Next() {
				args := d.RemainingArgs()
				for _, to := range args[min(1, len(args)):] { // the first one is the zone
					if host := hostOfTarget(to); host != "" {
						hosts = append(hosts, host)
					}
				}
				for d.NextBlock() {
					d.RemainingArgs()
				}
			}
		}
	}
	return hosts
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
