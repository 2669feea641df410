package answer

import (
	"context"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// maxText is the longest text of an Extended DNS Error, in bytes. JSON may be
// longer, see maxStructured.
const maxText = 200

// replyTo begins an answer with an Extended DNS Error (RFC 8914), which only
// clients that speak EDNS may be sent (RFC 6891 section 7).
func replyTo(r *dns.Msg, code uint16, text string) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.RecursionAvailable = true
	if opt := r.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), opt.Do())
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code, ExtraText: text}}
	}
	return m
}

// forged adds that an answer's addresses are not the name's own (RFC 8914 section 4.5:
// Forged Answer is for when an answer is still provided, Blocked for other response codes; a
// message may have several). Blocked stays, and stays first: it has the text. The draft of
// structured errors takes Blocked, Censored and Filtered only, so its clients get no more.
func forged(m *dns.Msg) {
	if opt := m.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeForgedAnswer})
	}
}

// truncate returns the first size bytes of a text, or up to 3 bytes less, to end with
// a whole character.
func truncate(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), max(0, size))], "")
}

// fit gives an answer the size that its client wants. If it is too large for that, fit
// shortens its Extended DNS Errors: otherwise the server would drop records, and the
// client would ask again over TCP. The server does so over UDP, QUIC and HTTP/3. fit leaves out all errors
// but the first, then tries the shorter texts in order, then truncates the last one. The answer to a query with
// padding is padded to a multiple of 468 bytes (RFC 8467 section 4.1) if that is not too large, but not over UDP.
func fit(ctx context.Context, w dns.ResponseWriter, r, m *dns.Msg, shorter []string) {
	opt := m.IsEdns0()
	if opt == nil {
		return
	}
	state := request.Request{W: w, Req: r}
	size, ede := state.Size(), opt.Option[0].(*dns.EDNS0_EDE)
	over := excess(m, size)
	if over > 0 && len(opt.Option) > 1 {
		opt.Option = opt.Option[:1]
		over = excess(m, size)
	}
	for ; over > 0 && len(shorter) > 0; shorter = shorter[1:] {
		ede.ExtraText = shorter[0]
		over = excess(m, size)
	}
	if over > 0 {
		ede.ExtraText = truncate(ede.ExtraText, len(ede.ExtraText)-over)
	}
	if overUDP(ctx, w) || !slices.ContainsFunc(r.IsEdns0().Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0PADDING }) {
		return
	}
	const head = 4 // bytes of an option
	if bare := m.Len() + head; bare <= size {
		padded := min((bare+paddingBlock-1)/paddingBlock*paddingBlock, size)
		opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, padded-bare)})
	}
}

// excess returns by how many bytes a message is larger than size.
func excess(m *dns.Msg, size int) int {
	m.Compress = true // as the server does where an answer would be too large
	defer func() { m.Compress = false }()
	return m.Len() - size
}

// overUDP reports whether a query came over plain UDP. The client's address does not
// tell: it is a UDP address over QUIC and HTTP/3 too.
func overUDP(ctx context.Context, w dns.ResponseWriter) bool {
	scheme, _, _ := strings.Cut(metrics.WithServer(ctx), "://")
	state := request.Request{W: w}
	return (scheme == "" || scheme == "dns") && state.Proto() == "udp"
}

const paddingBlock = 468
