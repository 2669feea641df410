package lookup

import (
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
	"unique"

	"golang.org/x/net/idna"
)

// Host is a host in canonical form: lower case, no dot at either end, no empty
// label ("URLs and Hashing"). The zero Host has no name and is always Safe. A Host is
// an immutable value and safe for concurrent use.
//
// It has four words and three fields: the compiler keeps no structure of more than four
// in registers, and a copy in memory costs a query more than the rest of FromQname.
type Host struct {
	name string
	ipv6 unique.Handle[string] // the IPv6 literal in the canonical form of version 4; zero: name is none
	form hostForm
}

// String returns the canonical host, or "" for the zero Host.
func (h Host) String() string { return h.name }

// FromQname returns the canonical host of a DNS name in presentation form
// (RFC 1035 section 5.1: `\.` and `\DDD` are escapes), with or without the
// final dot. It does not allocate if the name is canonical already.
//
// The host of a URL cannot hold a label with a dot, a slash, a space or another byte
// of notInHost. FromQname drops such a label and all labels to its left: no URL
// leads to the full name, but a list may hold its parents.
func FromQname(qname string) Host {
	name := strings.TrimSuffix(qname, ".")
	if dots, ok := isSurelyCanonical(name); ok {
		if dots == 0 || isDigit(name[bits.Len64(dots)]) || len(name) > maxDotted {
			return fromName(name, false)
		}
		return Host{name: name, form: hostForm(dots)}
	}
	all, both, last := byte(0), byte(0), byte(dotByte)
	for i := range len(name) {
		class := classes[name[i]]
		all |= class
		both |= class & last & dotByte
		last = class
	}
	switch {
	case (all&otherByte|both|last&dotByte) != 0 && name != "":
		return fromLabels(qname)
	case all&upperByte != 0:
		name = strings.ToLower(name)
	}
	return fromName(name, false)
}

// Classes of bytes in a name. A canonical host holds a byte without a class unchanged.
const (
	dotByte   = 1 << iota
	upperByte // becomes lower case
	otherByte // needs an escape or a closer look
)

var classes = func() (t [256]byte) {
	for b := range t {
		switch {
		case b == '.':
			t[b] = dotByte
		case 'A' <= b && b <= 'Z':
			t[b] = upperByte
		case b <= 0x20 || b >= 0x7f || strings.ContainsRune(`#%/?:@[]\`, rune(b)):
			t[b] = otherByte
		}
	}
	return t
}()

// notInHost are the bytes that end or divide the host of a URL. No label of such a
// host holds one of them.
const notInHost = `./?\:@[] `

// fromName returns the Host of a canonical name, which may be an IPv4 address.
func fromName(name string, truncated bool) Host {
	if ip, ok := parseIPv4(name); ok && !truncated {
		return Host{name: ip, form: isIP}
	}
	form := formOf(name)
	if truncated {
		form |= isTruncated
	}
	return Host{name: name, form: form}
}

// fromLabels is FromQname for any name: it is general and slower.
func fromLabels(qname string) Host {
	var name []byte
	truncated := false
	for label := range labels(qname) {
		label = unescape(label)
		if len(label) == 0 || strings.ContainsAny(string(label), notInHost) {
			name, truncated = name[:0], true
			continue
		}
		if len(name) > 0 {
			name = append(name, '.')
		}
		name = appendEscaped(name, label)
	}
	return fromName(string(name), truncated)
}

// labels yields the labels of a name in presentation form, escapes resolved.
func labels(qname string) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		var label []byte
		for i := 0; i < len(qname); i++ {
			switch c := qname[i]; {
			case c == '.':
				if !yield(label) {
					return
				}
				label = label[:0]
			case c == '\\' && i+3 < len(qname) && isDigit(qname[i+1]) && isDigit(qname[i+2]) && isDigit(qname[i+3]):
				label = append(label, (qname[i+1]-'0')*100+(qname[i+2]-'0')*10+qname[i+3]-'0')
				i += 3
			case c == '\\' && i+1 < len(qname):
				i++
				label = append(label, qname[i])
			default:
				label = append(label, c)
			}
		}
		if len(label) > 0 {
			yield(label)
		}
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// ParseHost returns the canonical form of a host that a person wrote: a name,
// possibly an international one, or an IP address in any spelling that browsers
// accept ("URLs and Hashing", steps 2 to 8). ok is false if text is not a host.
func ParseHost(text string) (h Host, ok bool) {
	return canonicalHost(string(unescape([]byte(text))), notInHost[1:])
}

// maxHost is the length of the longest DNS name, in presentation form without escapes
// (RFC 1035 section 2.3.4). A canonical host is longer only if it has escapes.
const maxHost = 253

// maxInternational is the most bytes of a host that is converted from an international
// name. A DNS name has at most maxHost code points of up to 4 bytes each. The bound is
// needed because punycode takes quadratic time.
const maxInternational = 4 * maxHost

// browserIDNA turns international names into ASCII as browsers do (URL Standard,
// section 3.3, "domain to ASCII", not strict): it allows underscores, hyphens anywhere,
// and labels of any length.
var browserIDNA = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false), idna.CheckHyphens(false))

// isForbidden reports whether r is a forbidden domain code point (URL Standard, section
// 3.1). It leaves out notInHost, which the caller checks.
func isForbidden(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("#%<>^|", r) }

// canonicalHost returns the canonical form of a host without percent-escapes. ok is
// false if it is not a host, for example because it holds a byte of forbidden.
func canonicalHost(raw, forbidden string) (h Host, ok bool) {
	if strings.HasPrefix(raw, "[") && strings.HasSuffix(raw, "]") {
		return parseIPv6(raw[1 : len(raw)-1])
	}
	raw = collapseDots(raw)
	if !isASCII(raw) && len(raw) <= maxInternational && utf8.ValidString(raw) {
		if ascii, err := browserIDNA.ToASCII(raw); err == nil && !strings.ContainsFunc(ascii, isForbidden) {
			raw = collapseDots(ascii) // again: ToASCII turns the dots of other scripts into "."
		}
	}
	if raw == "" || strings.ContainsAny(raw, forbidden) {
		return Host{}, false
	}
	return fromName(string(appendEscaped(nil, []byte(raw))), false), true
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// collapseDots removes dots at both ends and replaces each run of dots by one dot.
func collapseDots(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '.' }), ".")
}

// parseIPv6 returns the host of the text between brackets. An embedded IPv4 address
// replaces the IPv6 address, if it is mapped (::ffff:0:0/96) or NAT64 (64:ff9b::/96)
// ("URLs and Hashing").
func parseIPv6(text string) (Host, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() || addr.Zone() != "" {
		return Host{}, false
	}
	if nat64 := netip.MustParsePrefix("64:ff9b::/96"); nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	name := addr.Unmap().String()
	if !addr.Unmap().Is4() {
		name = "[" + name + "]"
	}
	return Host{name: name, form: isIP, ipv6: unique.Make("[" + strings.ToLower(text) + "]")}, true
}

// parseIPv4 reads an IPv4 address of one to four numbers and returns it as four decimal
// numbers. Each number is decimal, octal (0…) or hexadecimal (0x…). The last one fills
// all remaining bytes, so "127.1" is 127.0.0.1.
func parseIPv4(s string) (string, bool) {
	if s == "" || !isHex(s[len(s)-1]) {
		return "", false // most names end here
	}
	if last := s[strings.LastIndexByte(s, '.')+1:]; !isDigit(last[0]) {
		return "", false
	}
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return "", false
	}
	var addr uint64
	for i, part := range parts {
		width := 8
		if i == len(parts)-1 {
			width = 8 * (4 - i)
		}
		// Base 0 reads the prefixes 0 and 0x, but also 0b, 0o and underscores.
		if strings.ContainsAny(part, "bo_BO") && !strings.HasPrefix(part, "0x") {
			return "", false
		}
		n, err := strconv.ParseUint(part, 0, width)
		if err != nil || strings.Contains(part, "_") {
			return "", false
		}
		addr = addr<<width | n
	}
	return netip.AddrFrom4([4]byte{byte(addr >> 24), byte(addr >> 16), byte(addr >> 8), byte(addr)}).String(), true
}

// unescape decodes percent-escapes until none is left ("URLs and Hashing"). A decoded
// byte may begin or end another escape, so each new byte is checked with the two before
// it. That takes linear time.
func unescape(s []byte) []byte {
	out := make([]byte, 0, len(s))
	for _, c := range s {
		out = append(out, c)
		for n := len(out); n >= 3 && out[n-3] == '%' && isHex(out[n-2]) && isHex(out[n-1]); n = len(out) {
			out = append(out[:n-3], unhex(out[n-2])<<4|unhex(out[n-1]))
		}
	}
	return out
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// appendEscaped appends s in lower case and escapes bytes as appendByte does.
func appendEscaped(dst, s []byte) []byte {
	for _, c := range s {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = appendByte(dst, c)
	}
	return dst
}

// appendByte appends c. It escapes bytes up to 0x20, bytes from 0x7f, '#' and '%', as
// %XX in upper-case hex ("URLs and Hashing").
func appendByte(dst []byte, c byte) []byte {
	const hex = "0123456789ABCDEF"
	if c <= 0x20 || c >= 0x7f || c == '#' || c == '%' {
		return append(dst, '%', hex[c>>4], hex[c&15])
	}
	return append(dst, c)
}

// hostForm says what kind of name a Host has. The bits below isTruncated are for the bytes of
// the name, the lowest for the first: they are set for dots. None is set if the name has
// more bytes than there are bits, if it is an IP literal, or if scanName does not know it. It
// is one word, see Host.
type hostForm uint

const (
	isIP        hostForm = 1 << (bits.UintSize - 1) // an IP literal: it has no parent
	isTruncated hostForm = 1 << (bits.UintSize - 2) // only the end of what was asked: the labels before it cannot be part of a URL

	maxDotted = bits.UintSize - 2 // bytes
)

// formOf returns the form of a name that is no IP literal.
func formOf(name string) hostForm {
	dots, _, ok := scanName(name)
	if !ok || len(name) > maxDotted {
		return 0
	}
	return hostForm(dots)
}

func (h Host) ip() bool        { return h.form&isIP != 0 }
func (h Host) truncated() bool { return h.form&isTruncated != 0 }

// dots returns which bytes of the name are dots: bit i is for name[i]. It returns 0 if
// that is not known.
func (h Host) dots() uint64 { return uint64(h.form &^ (isIP | isTruncated)) }

// by returns the host in the canonical form of the protocol version of r. The versions
// differ only in IPv6 literals: version 4 turns them into lower case and leaves an
// embedded IPv4 address as it is.
func (h Host) by(r Rule) Host {
	if r == RuleV4 && h.ipv6 != (unique.Handle[string]{}) {
		return Host{name: h.ipv6.Value(), form: isIP}
	}
	return h
}
