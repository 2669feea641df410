package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

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
