package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// readZones reads the arguments of safebrowsing itself.
func (p *parser) readZones(args []string) error {
	for _, zone := range plugin.OriginsFromArgsOrServerBlock(nil, p.ServerBlockKeys) {
		if !slices.Contains(p.Zones, zone) { // a key for each transport and port
			p.Zones = append(p.Zones, zone)
		}
	}
	if len(args) == 0 {
		return nil
	}
	of := p.Zones
	p.Zones = nil
	for _, arg := range args {
		if err := p.notMeantAsZone(arg); err != nil {
			return err
		}
		zones, err := zonesOf(arg)
		if err != nil {
			return err
		}
		for _, zone := range zones {
			if len(of) > 0 && !overlaps(zone, of) {
				return fmt.Errorf("this server block is never asked for names in the zone %s: it is for %s", zone, strings.Join(of, ", "))
			}
			if !isPublic(strings.TrimSuffix(zone, ".")) && zone != "." {
				p.here().warn(p, "Safe Browsing knows no names in the zone %s, which is not public: only your own lists hold there", zone)
			}
		}
		p.Zones = append(p.Zones, zones...)
	}
	return nil
}

// notMeantAsZone returns an error for an argument of safebrowsing that is a
// property or a file.
func (p *parser) notMeantAsZone(arg string) error {
	word := strings.ToLower(arg)
	if alias, ok := synonyms[word]; ok {
		word = alias
	}
	_, isProperty := properties[word]
	switch {
	case say.HasSecret(arg):
		return errors.New("an API key is not a zone: put api_key KEY into braces on a line of its own")
	case strings.HasPrefix(arg, "{") || strings.HasSuffix(arg, "}"):
		return errors.New("a { must be the last word of its line, after a space, and a } must be on a line of its own")
	case isProperty:
		return fmt.Errorf("%s is a property: put it into braces on a line of its own (write %s. for a zone of that name)", word, arg)
	case strings.Contains(arg, ","):
		return fmt.Errorf("%q is not a zone: separate zones by spaces, without commas", arg)
	case p.namesFile(arg) && !isReverse(arg):
		return fmt.Errorf("%q is not a zone: put block or allow before the name of a file, in braces on a line of its own", arg)
	}
	return nil
}

// isReverse reports whether an argument with a slash names a reverse zone
// (RFC 2317).
func isReverse(arg string) bool {
	return isNetwork(arg) || strings.HasSuffix(strings.TrimSuffix(arg, "."), ".arpa")
}

// isNetwork reports whether an argument is a network in CIDR notation, as plugins that
// know clients take it.
func isNetwork(arg string) bool {
	_, err := netip.ParsePrefix(arg)
	return err == nil
}

// zonesOf returns the zones that an argument names, fully qualified and in lower
// case. A network can have several.
func zonesOf(arg string) ([]string, error) {
	if ascii, err := idna.Lookup.ToASCII(arg); err == nil && ascii != strings.ToLower(arg) {
		return nil, fmt.Errorf("%q is not how the DNS spells a zone: write %s", arg, ascii)
	}
	if name, ok := strings.CutPrefix(arg, "*."); ok {
		return nil, fmt.Errorf("%q is not a zone: write %s, which stands for all names below it too", arg, name)
	}
	zones := plugin.Host(arg).NormalizeExact()
	_, err := netip.ParseAddr(arg)
	if err == nil || len(zones) == 0 {
		return nil, fmt.Errorf("%q is not a zone: write a domain such as example.org", arg)
	}
	for _, zone := range zones {
		if strings.Trim(strings.ToLower(zone), nameLetters+"/") != "" || strings.Contains(zone, "/") && !isReverse(zone) {
			return nil, fmt.Errorf("%q is not a zone: write a domain such as example.org", arg)
		}
	}
	return zones, nil
}

func (p *parser) exceptZones(args []string) error {
	for _, arg := range args {
		zones, err := zonesOf(arg)
		if err != nil {
			return err
		}
		if isNetwork(arg) { // zonesOf has its reverse zones, hardly what was meant
			return fmt.Errorf("%s is a network: except takes names that are asked for; for clients use the plugin view, for their reverse names write %s",
				arg, strings.ReplaceAll(strings.Join(zones, " ")+" ", ". ", " "))
		}
		for _, zone := range zones {
			p.Except = append(p.Except, zone)
			p.exceptAt = append(p.exceptAt, p.here())
		}
	}
	return nil
}

// checkExcept refuses exceptions that leave no names to check, and exceptions outside
// of the zones. With inspect these have an effect: targets are checked in any zone.
func (p *parser) checkExcept() error {
	if len(p.Except) > 0 && !slices.ContainsFunc(p.Zones, func(zone string) bool { return !p.Except.Contains(zone) }) {
		return p.given["except"].errorf("except: this leaves no names to check in the zone %s", strings.Join(p.Zones, ", "))
	}
	for i, zone := range p.Except {
		if !p.Inspect && !overlaps(zone, p.Zones) {
			return p.exceptAt[i].errorf("except: no names in the zone %s are checked here anyway: the zones are %s", zone, strings.Join(p.Zones, ", "))
		}
	}
	return nil
}

// overlaps reports whether a zone is equal to, above or below one of the others.
func overlaps(zone string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool { return dns.IsSubDomain(zone, other) || dns.IsSubDomain(other, zone) })
}

// nameLetters are the characters of a host in a Corefile.
const nameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_."

// host returns the host that an argument names, and warns if that is a public
// suffix.
func (p *parser) host(arg string) (lookup.Host, error) {
	h, ok := lookup.ParseHost(arg)
	name := h.String()
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	_, valid := dns.IsDomainName(name)
	_, notDate := ownlist.ParseUntil(arg, nil)
	switch {
	case ok && err == nil:
		return lookup.Host{}, fmt.Errorf("%q is an address: write the name that is asked for", arg)
	case notDate == nil:
		return lookup.Host{}, fmt.Errorf("%q is a date: write until before it", arg)
	case !ok, !valid, strings.Trim(name, nameLetters) != "", strings.Contains(arg, ".."), strings.HasPrefix(arg, "."):
		return lookup.Host{}, fmt.Errorf("%q is not a host: write a name such as www.example.org", arg)
	}
	if ownlist.IsPublicSuffix(name) {
		p.here().warn(p, "%s is a public suffix: this holds for every name below it", name)
	}
	return h, nil
}

// isPublic reports whether the Public Suffix List knows the top-level domain of a
// name.
func isPublic(name string) bool {
	suffix, icann := publicsuffix.PublicSuffix("x." + name) // of some top-level domains it knows the names below only
	h, _ := lookup.ParseHost("x." + name)
	return (icann || strings.Contains(suffix, ".")) && h.Public()
}

// fileEndings are endings of files with names. An ending that is a top-level
// domain is taken for that.
var fileEndings = map[string]bool{
	"txt": true, "list": true, "lst": true, "hosts": true, "conf": true, "cfg": true, "csv": true, "rpz": true, "db": true,
	"gz": true, "json": true, "yaml": true, "yml": true, "html": true, "bak": true, "allow": true, "block": true, "deny": true,
}

// namesFile reports whether an argument that may be a host or a zone is a file: it
// has a slash, or an ending that files have and domains do not have, or it is one
// word and there is such a file.
func (p *parser) namesFile(arg string) bool {
	if strings.ContainsRune(arg, '/') || strings.ContainsRune(arg, filepath.Separator) {
		return true
	}
	if dot := strings.LastIndexByte(arg, '.'); dot >= 0 {
		return fileEndings[strings.ToLower(arg[dot+1:])] && !isPublic(arg)
	}
	info, err := os.Stat(p.path(arg))
	return err == nil && !info.IsDir()
}
