package lookup_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// This file is a second implementation of hosts and expressions, slow and obvious. It was written from the rules of "URLs and
// Hashing" (versions 4 and 5) without a look at the package. Where they leave a choice, a comment says which one both made.

// secondURL returns the expressions of a URL of ASCII only. ok is false for one without a host.
func secondURL(text string, rule lookup.Rule) (all []string, ok bool) {
	text = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(text)
	text, _, _ = strings.Cut(text, "#")
	_, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, false
	}
	// User and password go before the escapes do, else an escaped slash in a password would hide the host.
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if at := strings.LastIndex(rest[:end], "@"); at >= 0 {
		rest = rest[at+1:]
	}
	rest = unescapeAll(rest)
	end = strings.IndexAny(rest, "/?")
	if end < 0 {
		rest, end = rest+"/", len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	if colon := strings.LastIndex(authority, ":"); colon > strings.LastIndex(authority, "]") {
		if strings.Trim(authority[colon+1:], "0123456789") != "" {
			return nil, false // no port
		}
		authority = authority[:colon]
	}
	host, isAddress := secondHost(authority, rule)
	if host == "" {
		return nil, false
	}
	path, query, _ := strings.Cut(rest, "?")
	path = secondPath(path)
	paths := []string{}
	if query != "" { // of an empty query the text says nothing; Google's own client drops it, too
		paths = append(paths, escape(path+"?"+query))
	}
	paths = append(paths, escape(path))
	parts := strings.Split(path, "/") // the first is empty, the last is the file
	for n := 1; n < len(parts) && n <= 4; n++ {
		paths = append(paths, escape(strings.Join(parts[:n], "/")+"/"))
	}
	for _, h := range secondHosts(host, isAddress, rule) {
		for _, p := range paths {
			all = append(all, h+p)
		}
	}
	return all, true
}

// secondPath resolves "." and "..", then collapses runs of slashes.
func secondPath(path string) string {
	var kept []string
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		if part == ".." {
			kept = kept[:max(0, len(kept)-1)]
		}
		if dots := part == "." || part == ".."; !dots {
			kept = append(kept, part)
		} else if i == len(parts)-1 {
			kept = append(kept, "")
		}
	}
	return slashes.ReplaceAllString("/"+strings.Join(kept, "/"), "/")
}

// secondName returns the expressions of a DNS name, as labels.
func secondName(labels []string, rule lookup.Rule) []string {
	// Such a label is in no host of a URL, those to its right may be. Whether escapes come first, is not said: here they do.
	labels = slices.Clone(labels)
	for i, label := range labels {
		if strings.ContainsAny(unescapeAll(label), "./?\\:@[] ") {
			labels[i] = "["
		}
	}
	host, isAddress := secondHost(strings.Join(labels, "."), rule)
	if !isAddress && notPublic(host) {
		return nil
	}
	var all []string
	for _, h := range secondHosts(host, isAddress, rule) {
		if !strings.Contains(h, "[") {
			all = append(all, h+"/")
		}
	}
	return all
}

func notPublic(host string) bool {
	if !strings.Contains(host, ".") {
		return true
	}
	zones := []string{"in-addr.arpa", "ip6.arpa", "home.arpa", "local", "internal", "onion", "invalid", "test", "localhost"}
	return slices.ContainsFunc(zones, func(zone string) bool { return strings.HasSuffix("."+host, "."+zone) })
}

// secondHost returns the canonical form of a host.
func secondHost(text string, rule lookup.Rule) (host string, isAddress bool) {
	text = unescapeAll(text)
	text = capitals.ReplaceAllStringFunc(text, strings.ToLower)
	text = someDots.ReplaceAllString(strings.Trim(text, "."), ".")
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		if a, err := netip.ParseAddr(text[1 : len(text)-1]); err == nil && a.Is6() && a.Zone() == "" {
			if rule == lookup.RuleV4 {
				return text, true // version 4 has no rule but lower case
			}
			return secondAddress(a), true
		}
	}
	if a, ok := oldAddress(text); ok {
		return a, true
	}
	return escape(text), false
}

// secondAddress writes an IPv6 address. Mapped and NAT64 addresses are IPv4 addresses.
func secondAddress(a netip.Addr) string {
	if a.Is4In6() || netip.MustParsePrefix("64:ff9b::/96").Contains(a) {
		raw := a.As16()
		return netip.AddrFrom4([4]byte(raw[12:])).String()
	}
	return "[" + a.String() + "]"
}

// oldAddress reads an IPv4 address of 1 to 4 parts of any base. The last part fills the bytes that are left.
func oldAddress(text string) (string, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return "", false
	}
	var sum uint64
	for i, part := range parts {
		base, digits := 10, part
		if strings.HasPrefix(part, "0x") {
			base, digits = 16, part[2:]
		} else if len(part) > 1 && part[0] == '0' {
			base, digits = 8, part[1:]
		}
		n, err := strconv.ParseUint(digits, base, 64)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		if err != nil || n >= 1<<bits {
			return "", false
		}
		sum = sum<<bits | n
	}
	return fmt.Sprintf("%d.%d.%d.%d", sum>>24, sum>>16&255, sum>>8&255, sum&255), true
}

// secondHosts returns the exact host and up to four of its parents.
func secondHosts(host string, isAddress bool, rule lookup.Rule) []string {
	all := []string{host}
	if isAddress || host == "" {
		return all
	}
	labels := strings.Split(host, ".")
	from := func(n int) string { return strings.Join(labels[len(labels)-n:], ".") }
	if rule == lookup.RuleV4 {
		for n := min(5, len(labels)); n >= 2; n-- {
			all = append(all, from(n))
		}
		return all
	}
	registrable, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return all // a public suffix
	}
	first := strings.Count(registrable, ".") + 1
	for n := first; n < first+4 && n <= len(labels); n++ {
		all = append(all, from(n))
	}
	return all
}

func escape(text string) string {
	var escaped strings.Builder
	for _, b := range []byte(text) {
		if b <= 0x20 || b >= 0x7f || b == '#' || b == '%' {
			fmt.Fprintf(&escaped, "%%%02X", b)
		} else {
			escaped.WriteByte(b)
		}
	}
	return escaped.String()
}

var (
	anEscape = regexp.MustCompile("%[0-9a-fA-F]{2}")
	capitals = regexp.MustCompile("[A-Z]+")
	someDots = regexp.MustCompile(`\.+`)
	slashes  = regexp.MustCompile("/+")
)

func unescapeAll(text string) string {
	for anEscape.MatchString(text) {
		text = anEscape.ReplaceAllStringFunc(text, func(e string) string {
			n, _ := strconv.ParseUint(e[1:], 16, 8) // two such digits are a number
			return string([]byte{byte(n)})
		})
	}
	return text
}

// distinct returns each text once, sorted.
func distinct(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }
