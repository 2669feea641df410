package answer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// Kept is a name by whose answer clients decide whether to keep asking this server.
type Kept struct {
	Name   string // canonical, with its final dot
	Below  bool   // the names below it are kept, too
	Canary bool   // its absence keeps clients here; else it is the zone of RFC 9462
	Reason string // the label of the metric
	Text   string // of the Extended DNS Error
	Source string // who says so
	Read   string // the day on which the source was read
}

// ResolverZone is the zone in which clients look for encrypted resolvers that take the place of this one.
// Resolvers serve it themselves (RFC 9462 section 6.4), and forwarders SHOULD NOT forward it
// (section 6.1): the upstream would invite clients to ask it directly.
const ResolverZone = "resolver.arpa."

// KeptNames are the names that are kept, the zone of RFC 9462 first.
var KeptNames = []Kept{
	{
		Name: ResolverZone, Below: true, Reason: "resolver_arpa",
		Text:   "resolver.arpa is served by this resolver itself, RFC 9462",
		Source: "https://www.rfc-editor.org/rfc/rfc9462#section-6.4", Read: "2026-11-25",
	}, {
		// Any response code but NOERROR, or no address, keeps the default DNS over HTTPS off.
		Name: "use-application-dns.net.", Canary: true, Reason: "firefox",
		Text:   "by the operator of this network: Firefox uses its resolver",
		Source: "https://support.mozilla.org/en-US/kb/canary-domain-use-application-dnsnet", Read: "2026-11-25",
	}, {
		// NXDOMAIN or no address; the device tells its user that the network does not allow it.
		Name: "mask.icloud.com.", Canary: true, Reason: "private_relay",
		Text:   "by the operator of this network: no iCloud Private Relay",
		Source: "https://developer.apple.com/support/prepare-your-network-for-icloud-private-relay/", Read: "2026-11-25",
	}, {
		Name: "mask-h2.icloud.com.", Canary: true, Reason: "private_relay",
		Text:   "by the operator of this network: no iCloud Private Relay",
		Source: "https://developer.apple.com/support/prepare-your-network-for-icloud-private-relay/", Read: "2026-11-25",
	}, {
		// NXDOMAIN, SERVFAIL or no address: a prefetched page is looked up here before it is shown.
		Name: "dns-tunnel-check.googlezip.net.", Canary: true, Reason: "chrome_prefetch",
		Text:   "by the operator of this network: Chrome looks up prefetched pages",
		Source: "https://developer.chrome.com/docs/privacy-security/private-prefetch-proxy-for-network-admins", Read: "2026-11-25",
	},
}

// keptTTL is the TTL of answers about kept names, in seconds.
const keptTTL = 300

// Answer answers a query for a kept name. It uses ctx and w only to find out the transport.
func (k *Kept) Answer(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) *dns.Msg {
	code, zone := dns.ExtendedErrorCodeOther, k.Name // no other code fits a zone that is served here
	if k.Canary {
		code, zone = dns.ExtendedErrorCodeBlocked, parent(k.Name)
	}
	m := replyTo(r, code, k.Text)
	if k.Canary {
		m.Rcode = dns.RcodeNameError
	}
	m.Ns = []dns.RR{soa(zone, keptTTL)}
	fit(ctx, w, r, m, nil)
	return m
}

// Designated is a resolver for encrypted DNS that takes the place of this one (RFC 9462).
type Designated struct {
	Name      string // in its certificate, without a final dot
	ALPN      string // dot, doq, h2 or h3 (RFC 9461 section 4.1)
	Port      uint16
	Path      string       // of DNS over HTTPS, a template (RFC 9461 section 5); else ""
	Addresses []netip.Addr // where it listens; none: unknown
}

// DoHPath is where CoreDNS answers DNS over HTTPS, as a template (RFC 6570).
const DoHPath = "/dns-query{?dns}"

// designatedName is what clients ask for (RFC 9462 section 4).
const designatedName = "_dns." + ResolverZone

// String returns it as logs have it.
func (d Designated) String() string { return d.ALPN + " at " + d.Name }

// Designate answers a query for a kept name, and designates resolvers to who looks for them. One
// that listens on a loopback address is designated to this machine only.
func (k *Kept) Designate(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, all []Designated) *dns.Msg {
	q := r.Question[0]
	if !strings.EqualFold(q.Name, designatedName) || q.Qtype != dns.TypeSVCB && q.Qtype != dns.TypeANY {
		return k.Answer(ctx, w, r)
	}
	state := request.Request{W: w}
	client, _ := netip.ParseAddr(state.IP())
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	for _, d := range all {
		reachable := d.reachableBy(client)
		if len(d.Addresses) > 0 && len(reachable) == 0 {
			continue
		}
		m.Answer = append(m.Answer, d.record(q.Name, uint16(len(m.Answer)+1), reachable))
		for _, a := range reachable { // they save the client a query (RFC 9462 section 4)
			rr := addressRecord(dns.Fqdn(d.Name), a, keptTTL)
			if !slices.ContainsFunc(m.Extra, func(other dns.RR) bool { return dns.IsDuplicate(other, rr) }) {
				m.Extra = append(m.Extra, rr)
			}
		}
	}
	if len(m.Answer) == 0 {
		return k.Answer(ctx, w, r)
	}
	if opt := r.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), opt.Do())
	}
	return m
}

// reachableBy returns the addresses that a client can reach: loopback from this machine only, and none of a link, since
// records have no zones.
func (d *Designated) reachableBy(client netip.Addr) (all []netip.Addr) {
	for _, a := range d.Addresses {
		if a.Is6() && a.IsLinkLocalUnicast() {
			continue
		}
		if !a.IsLoopback() || client.Unmap().IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}

// record returns what RFC 9461 has of the resolver. The target is a name and never ".": no certificate
// has the name that was asked for.
func (d *Designated) record(owner string, priority uint16, addresses []netip.Addr) dns.RR {
	rr := &dns.SVCB{
		Hdr:      dns.RR_Header{Name: owner, Rrtype: dns.TypeSVCB, Class: dns.ClassINET, Ttl: keptTTL},
		Priority: priority, Target: dns.Fqdn(d.Name),
		Value: []dns.SVCBKeyValue{&dns.SVCBAlpn{Alpn: []string{d.ALPN}}, &dns.SVCBPort{Port: d.Port}},
	}
	four, six := new(dns.SVCBIPv4Hint), new(dns.SVCBIPv6Hint)
	for _, a := range addresses {
		if a.Is4() {
			four.Hint = append(four.Hint, net.IP(a.AsSlice()))
		} else {
			six.Hint = append(six.Hint, net.IP(a.AsSlice()))
		}
	}
	if len(four.Hint) > 0 {
		rr.Value = append(rr.Value, four)
	}
	if len(six.Hint) > 0 {
		rr.Value = append(rr.Value, six)
	}
	if d.Path != "" {
		rr.Value = append(rr.Value, &dns.SVCBDoHPath{Template: d.Path})
	}
	return rr
}
