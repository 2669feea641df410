package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) respondWith(args []string) error {
	i, err := choice(args[0], answer.Words()...)
	response := lookup.Response(i)
	switch _, notAddress := netip.ParseAddr(args[0]); {
	case err != nil && notAddress == nil:
		return fmt.Errorf("%w: did you mean respond sinkhole %s?", err, strings.Join(args, " "))
	case err != nil:
		return err
	case response != lookup.Sinkhole && len(args) > 1:
		return errors.New(args[0] + " takes no address")
	}
	p.Respond, p.Overrides = response, true
	if response == lookup.Sinkhole {
		return p.sinkhole(args[1:])
	}
	return nil
}

// sinkhole reads an IPv4 address, and an IPv6 address after it if there is one. Without an
// IPv4 address all queries for one would be answered with no address at all.
func (p *parser) sinkhole(args []string) error {
	for _, arg := range args {
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
	const usage = "sinkhole takes an IPv4 address, and may take an IPv6 address after it"
	switch ipv4First := len(args) > 0 && p.IPv4.IsValid() && (len(args) == 1 || p.IPv6.IsValid() && !isIPv6(args[0])); {
	case ipv4First:
		return nil
	case p.IPv6.IsValid():
		write := "0.0.0.0"
		if p.IPv4.IsValid() {
			write = p.IPv4.String()
		}
		return fmt.Errorf("%s: write respond sinkhole %s %s", usage, write, p.IPv6)
	}
	return errors.New(usage)
}

func isIPv6(text string) bool {
	addr, err := netip.ParseAddr(text)
	return err == nil && addr.Unmap().Is6()
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

// statusPage reads where the status page is served.
func (p *parser) statusPage(args []string) error {
	public := false
	for _, word := range args[1:] {
		switch word {
		case "names":
			p.StatusNames = true
		case "public":
			public = true
		default:
			return fmt.Errorf("%q is neither names nor public", word)
		}
	}
	host, port, err := net.SplitHostPort(args[0])
	if err != nil {
		return fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:8053", args[0])
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", args[0])
	}
	addr, err := netip.ParseAddr(host)
	if err != nil && host != "localhost" && host != "" {
		return fmt.Errorf("%q: %q is not an IP address", args[0], host)
	}
	if private := host == "localhost" || addr.Unmap().IsLoopback(); !private && !public {
		return fmt.Errorf("other machines can reach %s, and the page tells them what is blocked: add public if that is wanted, or use 127.0.0.1:%s", args[0], port)
	}
	p.Status = args[0]
	return nil
}
