package main

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// publicResolvers are addresses of resolvers by the name in their certificate, as their operators
// publish them. forward wants the address of a resolver, and others have its name only.
var publicResolvers = map[string][]string{
	"dns.quad9.net":               {"9.9.9.9", "149.112.112.112"},
	"dns10.quad9.net":             {"9.9.9.10", "149.112.112.10"},
	"dns11.quad9.net":             {"9.9.9.11", "149.112.112.11"},
	"dns.google":                  {"8.8.8.8", "8.8.4.4"},
	"cloudflare-dns.com":          {"1.1.1.1", "1.0.0.1"},
	"one.one.one.one":             {"1.1.1.1", "1.0.0.1"},
	"security.cloudflare-dns.com": {"1.1.1.2", "1.0.0.2"},
	"family.cloudflare-dns.com":   {"1.1.1.3", "1.0.0.3"},
	"dns.adguard-dns.com":         {"94.140.14.14", "94.140.15.15"},
	"unfiltered.adguard-dns.com":  {"94.140.14.140", "94.140.14.141"},
	"family.adguard-dns.com":      {"94.140.14.15", "94.140.15.16"},
}

// upstream adds an upstream as AdGuard Home, blocky, Pi-hole or Unbound writes it.
func (m *imported) upstream(line int, written string) {
	if m.told {
		return
	}
	m.asks = m.file
	all, why := forwardTo(written)
	if why != "" {
		m.leave(line, "upstream", written, why)
	}
	for _, u := range all {
		if !slices.Contains(m.forward, u) {
			m.forward = append(m.forward, u)
		}
	}
}

// byTLS are how upstreams that are encrypted begin.
var byTLS = regexp.MustCompile(`^(tcp-tls:(//)?|tls://|https://|https:|h3://|quic://|quic:)`)

// byPlainDNS are how others may begin.
var byPlainDNS = regexp.MustCompile(`^(tcp\+udp|udp|tcp):(//)?`)

// forwardTo returns an upstream in the words of forward. why says what is not as it was.
func forwardTo(written string) (all []string, why string) {
	switch {
	case strings.HasPrefix(written, "sdns://"):
		return nil, "a DNS stamp: write its address with -upstream"
	case strings.HasPrefix(written, "[/"):
		return nil, "for some domains only: see forward of CoreDNS"
	}
	scheme := byTLS.FindString(written)
	if scheme == "" {
		return plainUpstream(byPlainDNS.ReplaceAllString(written, ""))
	}
	u, err := url.Parse("x://" + strings.TrimPrefix(written, scheme))
	if err != nil || u.Hostname() == "" {
		return nil, "not an upstream"
	}
	host, port, name := strings.ToLower(u.Hostname()), u.Port(), u.Fragment
	if port == "853" || strings.HasPrefix(scheme, "https") || scheme == "h3://" || strings.HasPrefix(scheme, "quic") {
		port = ""
	}
	changed := ""
	if !strings.HasPrefix(scheme, "t") {
		changed = "asked by TLS"
	}
	addresses := publicResolvers[host]
	if address, err := netip.ParseAddr(host); err == nil {
		addresses = []string{address.String()}
		if name == "" {
			name = certificateOf(address.String())
		}
		if changed != "" && name == "" {
			return nil, "only its operator knows whether it answers by TLS: write tls://ADDRESS%NAME with -upstream"
		}
	} else if name == "" {
		name = host
	}
	if len(addresses) == 0 {
		return nil, "forward wants an address: write tls://ADDRESS%NAME with -upstream"
	}
	if !hostLetters.MatchString(name) {
		return nil, "not an upstream"
	}
	for _, address := range addresses {
		switch {
		case name != "":
			address = certified(address, name, port)
		case port != "":
			return nil, "forward wants the name in its certificate: write tls://ADDRESS%NAME:PORT with -upstream"
		}
		all = append(all, "tls://"+address)
	}
	return all, changed
}

// hostLetters are the letters a certificate's name may have.
var hostLetters = regexp.MustCompile(`^[A-Za-z0-9.-]*$`)

// certificateOf returns the name in the certificate of a public resolver, or "".
func certificateOf(address string) string {
	if slices.Contains(publicResolvers["cloudflare-dns.com"], address) { // which has two
		return "cloudflare-dns.com"
	}
	for name, addresses := range publicResolvers {
		if slices.Contains(addresses, address) {
			return name
		}
	}
	return ""
}

// plainUpstream returns an upstream without encryption: an address, with a port or without.
func plainUpstream(written string) (all []string, why string) {
	if address, port, ok := strings.Cut(written, "#"); ok { // of dnsmasq, and so of Pi-hole: 127.0.0.1#5335
		written = net.JoinHostPort(address, port)
	}
	if at, err := netip.ParseAddrPort(written); err == nil && at.Addr().Zone() == "" {
		if at.Port() == 53 {
			return []string{at.Addr().String()}, ""
		}
		return []string{at.String()}, ""
	}
	if address, err := netip.ParseAddr(strings.Trim(written, "[]")); err == nil && address.Zone() == "" {
		return []string{address.String()}, ""
	}
	return nil, "forward wants an address"
}
