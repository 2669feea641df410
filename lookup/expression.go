package lookup

import (
	"crypto/sha256"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// FullHash is the SHA-256 of an expression.
type FullHash [sha256.Size]byte

// Prefix is the first 4 to 32 bytes of a full hash. Nothing else about a host is sent
// to the server. It has 4 bytes unless the protocol demands more (version 4, for lists
// with longer entries).
type Prefix string

// minPrefix is the length of the shortest prefix, in bytes.
const minPrefix = 4

// Prefix returns the first n bytes. n is 4 to 32.
func (f FullHash) Prefix(n int) Prefix { return Prefix(f[:n]) }

// begins reports whether the full hash begins with p.
func (p Prefix) begins(f FullHash) bool { return string(f[:min(len(p), len(f))]) == string(p) }

// HashExpression returns the SHA-256 of an expression such as "example.com/".
func HashExpression(expression string) FullHash { return sha256.Sum256([]byte(expression)) }

// maxParents is the most suffixes of a host, besides the host itself, that become
// expressions ("URLs and Hashing").
const maxParents = 4

// maxExpressions is the most expressions of a host: itself and its parents.
const maxExpressions = 1 + maxParents

// Rule says which suffixes of a host become expressions. The zero Rule is RuleV5. A
// value without a name means RuleV5 too.
type Rule uint8

// The rules of the two versions of the protocol ("URLs and Hashing" of each).
const (
	RuleV5 Rule = iota // the registrable domain and up to three longer suffixes
	RuleV4             // the suffixes of two to five labels, public suffixes too
)

// Expressions returns the host-suffix expressions of the host by RuleV5 ("URLs and
// Hashing", v5): at most five distinct strings, each with its final slash. The exact
// host comes first, then the registrable domain (eTLD+1), then one label more at a
// time. The registrable domain comes from the Public Suffix List, with its private
// section: a match on "github.io/" itself would block all its users.
func (h Host) Expressions() []string { return h.ExpressionsBy(RuleV5) }

// ExpressionsBy returns the host-suffix expressions of the host by rule r: at most
// five distinct strings, each with its final slash. The exact host comes first, then
// the shortest suffix, then one label more at a time. RuleV4 ignores the Public Suffix
// List and yields "co.uk/" too. It yields a single label only if that is the host.
func (h Host) ExpressionsBy(r Rule) []string {
	h = h.by(r)
	var all []string
	for _, start := range h.starts(r) {
		all = append(all, h.name[start:]+"/")
	}
	return all
}

// hashes returns the full hashes of the expressions, in the order of Expressions.
func (h Host) hashes(r Rule) []FullHash {
	h = h.by(r)
	starts := h.starts(r)
	all := make([]FullHash, len(starts))
	sumSuffixes(all, h.name, starts)
	return all
}

// starts returns where in the name each expression begins, in the order of
// Expressions.
func (h Host) starts(r Rule) []int {
	if h.name == "" {
		return nil
	}
	starts := make([]int, 0, maxExpressions)
	if !h.truncated() {
		starts = append(starts, 0)
	}
	if h.ip() {
		return starts
	}
	start, ok := h.shortestParent(r)
	if !ok { // the name is a public suffix or a single label
		return starts
	}
	for range maxParents {
		if start != 0 || h.truncated() {
			starts = append(starts, start)
		}
		if start == 0 {
			break
		}
		start = h.labelBefore(start)
	}
	return starts
}

// shortestParent returns where the shortest suffix with an expression begins: the
// registrable domain, or with RuleV4 the last two labels. ok is false if there is none.
func (h Host) shortestParent(r Rule) (start int, ok bool) {
	if r == RuleV4 {
		last := h.labelBefore(len(h.name))
		return h.labelBefore(last), last != 0
	}
	name := h.name
	if h.truncated() { // a label before it decides whether a rule such as *.kobe.jp applies
		name = "[." + name
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	return len(h.name) - len(domain), err == nil && len(domain) <= len(h.name)
}

// labelBefore returns the start of the label that ends before start, or 0.
func (h Host) labelBefore(start int) int {
	return strings.LastIndexByte(strings.TrimSuffix(h.name[:start], "."), '.') + 1
}

// maxLabelsWithoutPSL: a name with at most this many labels skips the Public Suffix
// List. Every suffix of two or more labels is looked up, a superset of the legal
// expressions.
const maxLabelsWithoutPSL = 10

// suffixStarts returns where each expression begins, and perhaps where some suffixes
// begin that are not expressions. The result is in dst, an empty buffer, if the name has
// few labels. The Public Suffix List would take most of the time for a clean name, so
// only a name that matches a list is checked with it.
func (h Host) suffixStarts(dst []int, r Rule) []int {
	if h.ip() {
		return append(dst, 0)
	}
	if dots := h.dots(); dots != 0 {
		return h.startsAfter(dst, dots, r)
	}
	labels := 0
	for end := len(h.name); end > 0; end -= 8 {
		for dots := dotsBefore(h.name, end); dots != 0; {
			last := bits.Len64(dots) - 1
			dots ^= 1 << last
			if labels++; labels == maxLabelsWithoutPSL {
				return h.starts(r)
			}
			if labels > 1 {
				dst = append(dst, end-8+last/8+1)
			}
		}
	}
	return append(dst, 0)
}

// startsAfter is suffixStarts with the dots of the name: bit i is for name[i].
func (h Host) startsAfter(dst []int, dots uint64, r Rule) []int {
	if bits.OnesCount64(dots) >= maxLabelsWithoutPSL {
		return h.starts(r)
	}
	for dots &^= 1 << 63 >> bits.LeadingZeros64(dots); dots != 0; {
		last := bits.Len64(dots) - 1
		dots ^= 1 << last
		dst = append(dst, last+1)
	}
	return append(dst, 0)
}

// Public reports whether Safe Browsing can know the host at all. It cannot know single
// labels, addresses of private networks, and names that never are public: the names in IANA's
// registry of special-use domain names but for example names, which resolve as others do
// (RFC 6761 section 6.5), all reverse zones, the top-level domains that private networks use
// (RFC 6762 appendix G), and fritz.box, where AVM's routers answer themselves. Such a host is
// neither looked up nor sent.
func (h Host) Public() bool {
	if h.ip() {
		addr, err := netip.ParseAddr(strings.Trim(h.name, "[]"))
		return err == nil && addr.IsGlobalUnicast() && !addr.IsPrivate()
	}
	tld := bits.Len64(h.dots())
	if tld == 0 {
		if tld = strings.LastIndexByte(h.name, '.') + 1; tld == 0 {
			return false
		}
	}
	if !endsPrivate(h.name) {
		return true
	}
	switch h.name[tld:] {
	case "local", "internal", "onion", "invalid", "test", "localhost", "alt",
		"intranet", "private", "corp", "home", "lan":
		return false
	case "box":
		return !below(h.name, "fritz.box")
	case "arpa":
		return !slices.ContainsFunc(privateArpa[:], func(zone string) bool { return below(h.name, zone) })
	}
	return true
}

// privateArpa are the special-use zones in arpa, and the reverse zones.
var privateArpa = [...]string{
	"in-addr.arpa", "ip6.arpa",
	"6tisch.arpa",   // RFC 9031
	"eap.arpa",      // RFC 9965
	"eap-noob.arpa", // RFC 9140
	"home.arpa",     // RFC 8375
	"ipv4only.arpa", // RFC 8880
	"resolver.arpa", // RFC 9462
	"service.arpa",  // RFC 9665
}

// endsPrivate reports whether a name's last two letters may end a top-level domain
// that Public knows. For most names it is false, which a processor can predict; how long the
// top-level domain is it cannot.
func endsPrivate(name string) bool {
	const (
		lastButOne = uint32(1<<('a'%32) | 1<<('o'%32) | 1<<('i'%32) | 1<<('s'%32) | 1<<('l'%32) | 1<<('p'%32) | 1<<('r'%32) | 1<<('t'%32) | 1<<('m'%32) | 1<<('e'%32))
		last       = uint32(1<<('l'%32) | 1<<('n'%32) | 1<<('d'%32) | 1<<('t'%32) | 1<<('a'%32) | 1<<('p'%32) | 1<<('e'%32) | 1<<('x'%32))
	)
	n := len(name)
	return n < 2 || (lastButOne>>(name[n-2]%32))&(last>>(name[n-1]%32))&1 != 0
}

// below reports whether name is zone or a name below it.
func below(name, zone string) bool {
	return strings.HasSuffix(name, zone) &&
		(len(name) == len(zone) || name[len(name)-len(zone)-1] == '.')
}
