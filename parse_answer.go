package safebrowsing

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) respondWith(args []string) error {
	i, err := choice(args[0], "nxdomain", "nodata", "refused", "sinkhole") // as the constants of respond
	switch {
	case err != nil:
		return err
	case respond(i) == respondSinkhole && len(args) == 1:
		return errors.New("sinkhole takes an IPv4 address, and may take an IPv6 address after it")
	case respond(i) != respondSinkhole && len(args) > 1:
		return errors.New(args[0] + " takes no address")
	}
	p.respond, p.overrides = respond(i), true
	for _, arg := range args[1:] {
		addr, err := netip.ParseAddr(arg)
		if err != nil || addr.Zone() != "" {
			return errors.New(strconv.Quote(arg) + " is not an IP address")
		}
		if addr = addr.Unmap(); addr.Is4() && !p.ipv4.IsValid() {
			p.ipv4 = addr
		} else if addr.Is6() && !p.ipv6.IsValid() {
			p.ipv6 = addr
		} else {
			return errors.New("sinkhole takes one IPv4 and one IPv6 address")
		}
	}
	return nil
}

func (p *parser) framesWhat(args []string) error {
	i, err := choice(args[0], "block", "pass") // as the constants of lookup.Frames
	if err != nil {
		return err
	}
	p.frames = lookup.Frames(i)
	return nil
}

func (p *parser) blockingTTL(args []string) (err error) {
	if p.ttl, err = duration(args[0], 0, maxBlockedTTL); err == nil && p.ttl%time.Second != 0 {
		err = errors.New(strconv.Quote(args[0]) + " is not a number of whole seconds, as a TTL must be")
	}
	return err
}

func (p *parser) structuredErrors(args []string) error {
	code, err := number(args[0], 1, 65535)
	if err != nil {
		return err
	}
	for _, contact := range args[1:] {
		if !strings.HasPrefix(contact, "mailto:") && !strings.HasPrefix(contact, "tel:") {
			return errors.New(strconv.Quote(contact) + " is not a contact: it must begin with mailto: or tel:")
		}
	}
	p.structured = structured{code: uint16(code), contacts: args[1:]}
	return nil
}
