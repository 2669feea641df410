package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) endpointURLs(args []string) error {
	for i, arg := range args {
		args[i] = strings.TrimSuffix(arg, "/")
	}
	p.Endpoint = strings.Join(args, " ")
	return nil
}

// checkPort refuses a port that no server can have.
func checkPort(u *url.URL) error {
	if u.Port() == "" {
		return nil
	}
	if _, err := number(u.Port(), 1, 65535); err != nil {
		return fmt.Errorf("the port %w", err)
	}
	return nil
}

// maxCA is the most bytes of a file of certificates. The system's have 200 kB.
const maxCA = 1 << 20

// tls reads [CERT KEY] [CA], as the words tls of forward and grpc do: the authorities that sign the
// servers' certificates, by default the system's, and this client's certificate.
func (p *parser) tls(args []string) error {
	if len(args) >= 2 {
		p.Cert, p.CertKey = p.path(args[0]), p.path(args[1])
		if _, err := tls.LoadX509KeyPair(p.Cert, p.CertKey); err != nil {
			return fmt.Errorf("%s and %s: %w", p.Cert, p.CertKey, err)
		}
		args = args[2:]
	}
	if len(args) == 0 {
		return nil
	}
	return p.readCA(p.path(args[0]))
}

// TLSLine returns the property tls of the flags -endpoint-cert CERT,KEY and -endpoint-ca CA, either
// of which may be "", or nil if both are.
func TLSLine(certAndKey, ca string) ([]string, error) {
	line := []string{"tls"}
	if certAndKey != "" {
		line = append(line, strings.Split(certAndKey, ",")...)
		if len(line) != 3 {
			return nil, fmt.Errorf("-endpoint-cert %s: write two files with a comma, the certificate and its key", certAndKey)
		}
	}
	if ca != "" {
		line = append(line, ca)
	}
	if len(line) == 1 {
		return nil, nil
	}
	return line, nil
}

func (p *parser) readCA(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCA+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxCA:
		return fmt.Errorf("%s has more than %d bytes", path, maxCA)
	case len(text) == 0:
		return errors.New(path + " is empty")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: there is no certificate in PEM, such as -----BEGIN CERTIFICATE-----", path)
	}
	p.CA = string(text)
	return nil
}

// checkEndpoints checks how the endpoints are reached.
func (p *parser) checkEndpoints() error {
	endpoints, at := strings.Fields(p.Endpoint), p.given["endpoint"]
	for _, endpoint := range endpoints {
		if (p.Secret != "" || len(endpoints) > 1) && InClearText(endpoint) {
			if p.Secret == "" {
				return at.errorf("endpoint: %s: http to several servers is for your own network: use https", endpoint)
			}
			return at.errorf("endpoint: http would send the API key in clear text: use https")
		}
	}
	if at, given := p.given["tls"]; given && len(endpoints) > 0 && !slices.ContainsFunc(endpoints, isHTTPS) {
		return at.errorf("tls has no effect: no endpoint begins with https://")
	}
	return nil
}

func isHTTPS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "https"
}

// InClearText reports whether what is sent to an endpoint can be read on its way
// over a public network.
func InClearText(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		addr = addr.Unmap()
		return !addr.IsLoopback() && !addr.IsPrivate() && !addr.IsLinkLocalUnicast()
	}
	// Public also knows the names that never leave a site (RFC 6761, RFC 6762,
	// RFC 8375, and ICANN's .internal).
	h, _ := lookup.ParseHost(u.Hostname())
	return h.Public()
}
