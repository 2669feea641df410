package answer

import (
	"context"

	"github.com/miekg/dns"
)

// Kept is a name by whose answer clients decide whether to go on asking this server.
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

// KeptTTL is the TTL of answers about kept names, in seconds.
const KeptTTL = 300

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
	m.Ns = []dns.RR{soa(zone, KeptTTL)}
	fit(ctx, w, r, m, nil)
	return m
}
