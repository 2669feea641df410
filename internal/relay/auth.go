package relay

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
)

// auth knows which clients may ask, and tells them apart. It is safe for concurrent use.
type auth struct {
	tokens atomic.Pointer[[][sha256.Size]byte] // of the keys that clients may send; nil: no key is needed
}

// maxClientKeys is the most keys in a file: each request is compared with all of them.
const maxClientKeys = 1000

var errNoKey = errors.New("this relay needs a key: set api_key or api_key_file in the Corefile of the client")

// load reads the keys of clients from a file: one on each line. Empty lines and lines
// that begin with # do not count. After an error the keys before stay in force.
func (a *auth) load(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var sums [][sha256.Size]byte
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		key := strings.TrimSpace(lines.Text())
		if key == "" || strings.HasPrefix(key, "#") {
			continue
		}
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return fmt.Errorf("%s:%d: a key holds a space or another character that no key may have", path, n)
		}
		sums = append(sums, sha256.Sum256([]byte(key)))
	}
	switch {
	case lines.Err() != nil:
		return fmt.Errorf("%s: %w", path, lines.Err())
	case len(sums) == 0:
		return fmt.Errorf("%s holds no key: write one key on each line", path)
	case len(sums) > maxClientKeys:
		return fmt.Errorf("%s holds %d keys, at most %d are allowed", path, len(sums), maxClientKeys)
	}
	a.tokens.Store(&sums)
	return nil
}

// client returns whom the limits of a request are for, or errNoKey. With certificates
// that is the key of the certificate. Otherwise it is the address; with keys it is the
// address and the key, since a whole network may share one key.
func (a *auth) client(r *http.Request) (netip.Addr, error) {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address: all such clients share a limit
	addr := remote.Addr().Unmap().WithZone("")
	if tokens := a.tokens.Load(); tokens != nil {
		sum := sha256.Sum256([]byte(keyOf(r)))
		if !holds(*tokens, sum) {
			return addr, errNoKey
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return pseudonym(sum[:], site(addr)), nil
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return pseudonym(r.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo), nil
	}
	return addr, nil
}

// keyOf returns the API key of a request: of the header, or else of the parameter.
// Google's servers take both (Google Cloud, "System parameters").
func keyOf(r *http.Request) string {
	if key := r.Header.Get("X-Goog-Api-Key"); key != "" {
		return key
	}
	return r.URL.Query().Get("key")
}

// holds compares a sum with all others. How long that takes tells nothing about them.
func holds(all [][sha256.Size]byte, sum [sha256.Size]byte) bool {
	found := 0
	for i := range all {
		found |= subtle.ConstantTimeCompare(all[i][:], sum[:])
	}
	return found == 1
}

// pseudonym returns an address that stands for a client. Limiters tell clients apart by
// the first 56 bits of an IPv6 address.
func pseudonym(parts ...[]byte) netip.Addr {
	sum := sha256.Sum256(bytes.Join(parts, []byte{0}))
	var addr [16]byte
	copy(addr[:7], sum[:])
	addr[0] |= 0x80 // never an IPv4 address in IPv6
	return netip.AddrFrom16(addr)
}

// site returns what all addresses of one IPv6 client share, or an IPv4 address.
func site(addr netip.Addr) []byte {
	if addr.Is6() {
		network, _ := addr.Prefix(56)
		addr = network.Addr()
	}
	return addr.AsSlice()
}
