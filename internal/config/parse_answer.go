package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) respondWith(args []string) error {
	i, err := choice(args[0], answer.ModeWords()...)
	mode := answer.Mode(i)
	switch {
	case err != nil:
		return err
	case mode == answer.Sinkhole && len(args) == 1:
		return errors.New("sinkhole takes an IPv4 address, and may take an IPv6 address after it")
	case mode != answer.Sinkhole && len(args) > 1:
		return errors.New(args[0] + " takes no address")
	}
	p.Respond, p.Overrides = mode, true
	for _, arg := range args[1:] {
		addr, err := netip.ParseAddr(arg)
		if err != nil || addr.Zone() != "" {
			return errors.New(strconv.Quote(arg) + " is not an IP address")
		}
		if addr = addr.Unmap(); addr.Is4() && !p.IPv4.IsValid() {
			p.IPv4 = addr
		} else if addr.Is6() && !p.IPv6.IsValid() {
			p.IPv6 = addr
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
	p.Frames = lookup.Frames(i)
	return nil
}

func (p *parser) blockingTTL(args []string) (err error) {
	if p.TTL, err = duration(args[0], 0, answer.MaxTTL); err == nil && p.TTL%time.Second != 0 {
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
	p.Structured = answer.Structured{Code: uint16(code), Contacts: args[1:]}
	return nil
}
