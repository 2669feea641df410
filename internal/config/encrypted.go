package config

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// Encrypted is where a server block with the plugin offers encrypted DNS for all names.
type Encrypted struct {
	Key         string // as the Corefile has it, such as tls://.:853
	Bind        []netip.Addr
	Name        string            // the first name in the certificate that is no wildcard; "": there is none
	Certificate *x509.Certificate // nil: unknown, as with ACME
	Err         error             // why the certificate cannot be read
	alpn, path  string
	port        uint16
	order       int
}

// offered are the transports that clients can find (RFC 9461 section 4), with what CoreDNS speaks over
// each, and in which order they are designated: first those over which CoreDNS does not cut answers to the
// size that clients take over UDP, and of these the least costly for this server.
var offered = map[string]struct {
	alpn, path string
	order      int
}{
	transport.TLS:    {"dot", "", 1},
	transport.HTTPS:  {"h2", answer.DoHPath, 2},
	transport.QUIC:   {"doq", "", 3},
	transport.HTTPS3: {"h3", answer.DoHPath, 4},
}

// EncryptedOf returns where server blocks offer encrypted DNS with the plugin, in the order in which
// clients should try it. Those that do not block whatever name is listed would lead clients past the
// plugin; those with a view, and those that demand a certificate of their clients, are for some clients only.
func EncryptedOf(blocks []caddyfile.ServerBlock) (all []Encrypted) {
	for _, b := range blocks {
		if !blocksAll(b) || len(b.Tokens["view"]) > 0 || demandsCertificate(b) {
			continue
		}
		listening := ListeningOf(b)
		for _, l := range listening.Listeners {
			o, ok := offered[l.Transport]
			port, err := strconv.ParseUint(l.Port, 10, 16)
			if !ok || err != nil || port == 0 || l.Zone != "." {
				continue
			}
			e := Encrypted{Key: fmt.Sprintf("%s://%s:%d", l.Transport, l.Zone, port), alpn: o.alpn, path: o.path, port: uint16(port), order: o.order}
			for _, word := range listening.Bind {
				if a, err := netip.ParseAddr(word); err == nil && !a.IsUnspecified() {
					e.Bind = append(e.Bind, a.Unmap().WithZone(""))
				}
			}
			if len(e.Bind) < len(listening.Bind) { // the others are not known here: loopback alone would be nothing for a network
				e.Bind = slices.DeleteFunc(e.Bind, netip.Addr.IsLoopback)
			}
			e.readNames(b)
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Encrypted) int { return cmp.Compare(a.order, b.order) })
	return all
}

// blocksAll reports whether a server block has the plugin, for all names and without monitor.
func blocksAll(b caddyfile.ServerBlock) bool {
	d := caddyfile.NewDispenserTokens("", b.Tokens[say.Plugin])
	if !d.Next() {
		return false
	}
	zones := d.RemainingArgs()
	for d.NextBlock() {
		if d.Val() == "monitor" {
			return false
		}
		d.RemainingArgs()
	}
	return len(zones) == 0 || slices.Contains(zones, ".")
}

// demandsCertificate reports whether clients without a certificate cannot connect.
func demandsCertificate(b caddyfile.ServerBlock) bool {
	words := b.Tokens["tls"]
	i := slices.IndexFunc(words, func(word caddyfile.Token) bool { return word.Text == "client_auth" })
	return i >= 0 && i+1 < len(words) && strings.HasPrefix(words[i+1].Text, "require")
}

// readNames reads the certificate of the plugin tls, or the names that it gets one for by ACME.
func (e *Encrypted) readNames(b caddyfile.ServerBlock) {
	d := caddyfile.NewDispenserTokens("", b.Tokens["tls"])
	if !d.Next() {
		e.Err = errors.New("the server block has no tls")
		return
	}
	var names []string
	if args := d.RemainingArgs(); len(args) >= 2 {
		if e.Certificate, e.Err = firstCertificate(b, args[0]); e.Err != nil {
			return
		}
		names = e.Certificate.DNSNames
	}
	for d.NextBlock() {
		if word, args := d.Val(), d.RemainingArgs(); word == "acme" {
			names = args
		}
	}
	if i := slices.IndexFunc(names, func(name string) bool { return !strings.Contains(name, "*") }); i >= 0 {
		e.Name = names[i]
	}
}

// firstCertificate reads the certificate of the server from a file in PEM.
func firstCertificate(b caddyfile.ServerBlock, path string) (*x509.Certificate, error) {
	if root := b.Tokens["root"]; !filepath.IsAbs(path) && len(root) == 2 {
		path = filepath.Join(root[1].Text, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, fmt.Errorf("%s: there is no certificate in it", path)
}

// Designated returns what clients are told of those that have a name.
func Designated(all []Encrypted) (designated []answer.Designated) {
	for _, e := range all {
		if e.Name != "" {
			designated = append(designated, answer.Designated{Name: e.Name, ALPN: e.alpn, Port: e.port, Path: e.path, Addresses: e.Bind})
		}
	}
	return designated
}

// Undesignated returns a warning for each of those that clients are not led to.
func (c *Config) Undesignated(all []Encrypted) (warnings []string) {
	for _, e := range all {
		if e.Name == "" && c.Keep != KeepNothing {
			warnings = append(warnings, e.Trouble()+": clients that look for encrypted DNS do not find it")
		}
	}
	return warnings
}

// Trouble says why clients cannot be led there, or returns "".
func (e *Encrypted) Trouble() string {
	switch {
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Key, e.Err)
	case e.Name == "":
		return e.Key + ": its certificate has no DNS name that is not a wildcard"
	}
	return ""
}

// Lacks returns the addresses among those where clients ask, without encryption, that the certificate does
// not have: clients that ask there and verify do not come (RFC 9462 section 4.2).
func (e *Encrypted) Lacks(asked []netip.Addr) (missing []netip.Addr) {
	if e.Certificate == nil {
		return nil
	}
	for _, a := range asked {
		if e.Certificate.VerifyHostname(a.String()) != nil {
			missing = append(missing, a)
		}
	}
	return missing
}

// PlainAddresses returns the addresses of this machine at which server blocks with the plugin answer
// plain DNS for others.
func PlainAddresses(blocks []caddyfile.ServerBlock, machine []netip.Addr) (all []netip.Addr) {
	for _, a := range machine {
		if a = a.Unmap().WithZone(""); a.IsLoopback() || a.IsLinkLocalUnicast() || slices.Contains(all, a) {
			continue
		}
		if slices.ContainsFunc(blocks, func(b caddyfile.ServerBlock) bool {
			return len(b.Tokens[say.Plugin]) > 0 && ListeningOf(b).At(a, 53)
		}) {
			all = append(all, a)
		}
	}
	return all
}
