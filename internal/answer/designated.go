package answer

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

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
		for _, rr := range addressRecords(dns.Fqdn(d.Name), reachable) {
			m.Extra = appendOnce(m.Extra, rr)
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

// reachableBy returns the addresses that a client can reach: loopback from this machine only.
func (d *Designated) reachableBy(client netip.Addr) (all []netip.Addr) {
	for _, a := range d.Addresses {
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
		Hdr:      dns.RR_Header{Name: owner, Rrtype: dns.TypeSVCB, Class: dns.ClassINET, Ttl: KeptTTL},
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

// addressRecords returns the addresses of a name, which save the client a query (RFC 9462 section 4).
func addressRecords(name string, addresses []netip.Addr) (all []dns.RR) {
	for _, a := range addresses {
		header := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: KeptTTL}
		if a.Is4() {
			all = append(all, &dns.A{Hdr: header, A: net.IP(a.AsSlice())})
		} else {
			header.Rrtype = dns.TypeAAAA
			all = append(all, &dns.AAAA{Hdr: header, AAAA: net.IP(a.AsSlice())})
		}
	}
	return all
}

// appendOnce appends a record that is not there.
func appendOnce(all []dns.RR, rr dns.RR) []dns.RR {
	for _, other := range all {
		if dns.IsDuplicate(other, rr) {
			return all
		}
	}
	return append(all, rr)
}
