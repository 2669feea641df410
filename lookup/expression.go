package lookup

import (
	"crypto/sha256"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// FullHash is the SHA-256 of an expression.
type FullHash [sha256.Size]byte

// Prefix is the first bytes of a full hash, 4 to 32 of them: all that ever leaves
// for the server. It is 4 bytes wherever the server does not demand more.
type Prefix string

// minPrefix is the length of the shortest prefix, in bytes.
const minPrefix = 4

// Prefix returns the first n bytes, 4 to 32.
func (f FullHash) Prefix(n int) Prefix { return Prefix(f[:n]) }

// begins reports whether the full hash begins with p.
func (p Prefix) begins(f FullHash) bool { return string(f[:min(len(p), len(f))]) == string(p) }

// HashExpression returns the SHA-256 of an expression such as "example.com/".
func HashExpression(expression string) FullHash { return sha256.Sum256([]byte(expression)) }

// maxParents is how many candidates begin at the registrable domain.
const maxParents = 4

// maxExpressions is the most expressions a host has: itself and its parents.
const maxExpressions = 1 + maxParents

// Rule says which suffixes of a host are candidates. The zero Rule is that of
// version 5, as is every value without a name.
type Rule uint8

// The rules of the two versions of the protocol ("URLs and Hashing" of each).
const (
	RuleV5 Rule = iota // up to four that begin at the registrable domain
	RuleV4             // up to four of two to five labels, whoever owns them
)

// Expressions returns the host-suffix expressions of the host, the exact host
// first and then from the registrable domain (eTLD+1) one label at a time
// towards the left: at most five distinct strings, each with its final slash
// ("URLs and Hashing", v5). The registrable domain is found by the Public
// Suffix List, its private section included: a hit on "github.io/" itself
// would block everyone who lives there.
func (h Host) Expressions() []string { return h.ExpressionsBy(RuleV5) }

// ExpressionsBy returns the host-suffix expressions of the host by one of the
// rules, the exact host first and then from the shortest suffix one label at a
// time towards the left: at most five distinct strings, each with its final
// slash. RuleV4 does not ask the Public Suffix List: it yields "co.uk/" too, but
// never the last label alone unless that is the host.
func (h Host) ExpressionsBy(r Rule) []string {
	h = h.by(r)
	var all []string
	for _, start := range h.starts(r) {
		all = append(all, h.name[start:]+"/")
	}
	return all
}

// starts returns where in the name each expression begins, in the order of
// Expressions.
func (h Host) starts(r Rule) []int {
	if h.name == "" {
		return nil
	}
	starts := make([]int, 0, maxExpressions)
	if !h.partly {
		starts = append(starts, 0)
	}
	if h.ip {
		return starts
	}
	start, ok := h.shortestParent(r)
	if !ok { // the name is itself a public suffix, or a single label
		return starts
	}
	for range maxParents {
		if start > 0 || h.partly {
			starts = append(starts, start)
		}
		if start == 0 {
			break
		}
		start = h.labelBefore(start)
	}
	return starts
}

// shortestParent returns where the shortest suffix begins that is a candidate: the
// registrable domain, or by RuleV4 the last two labels.
func (h Host) shortestParent(r Rule) (start int, ok bool) {
	if r == RuleV4 {
		last := h.labelBefore(len(h.name) + 1)
		return h.labelBefore(last), last > 0
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(h.name)
	return len(h.name) - len(domain), err == nil
}

// labelBefore returns the start of the label that ends before start, or 0.
func (h Host) labelBefore(start int) int {
	return strings.LastIndexByte(h.name[:max(0, start-1)], '.') + 1
}

// maxUnasked is the number of labels up to which the Public Suffix List need
// not be asked about a clean name: all suffixes of two labels and more are
// looked up, of which those that it allows are some.
const maxUnasked = 10

// suffixStarts appends to dst the start of every expression that the rule could
// allow, and perhaps of some that the Public Suffix List does not: for a name
// that is in no list asking it would be the greater part of the work.
func (h Host) suffixStarts(dst []int, r Rule) []int {
	if h.ip {
		return append(dst, 0)
	}
	labels := 0
	for i := len(h.name); i > 0; i-- {
		if h.name[i-1] != '.' {
			continue
		}
		if labels++; labels == maxUnasked {
			return append(dst[:0], h.starts(r)...)
		}
		if labels > 1 {
			dst = append(dst, i)
		}
	}
	return append(dst, 0)
}

// Public reports whether the host can be known to Safe Browsing at all. Single
// labels, reverse zones and the names that never leave a site (RFC 6761, RFC
// 6762, RFC 7686, RFC 8375, RFC 9476 (.alt) and ICANN's .internal) cannot; they are
// neither looked up nor sent.
func (h Host) Public() bool {
	if h.ip {
		return true
	}
	dot := strings.LastIndexByte(h.name, '.')
	if dot < 0 {
		return false
	}
	switch h.name[dot+1:] {
	case "local", "internal", "onion", "invalid", "test", "localhost", "alt":
		return false
	case "arpa":
		return !below(h.name, "in-addr.arpa") && !below(h.name, "ip6.arpa") && !below(h.name, "home.arpa")
	}
	return true
}

// below reports whether name is zone or a name below it.
func below(name, zone string) bool {
	return strings.HasSuffix(name, zone) &&
		(len(name) == len(zone) || name[len(name)-len(zone)-1] == '.')
}
