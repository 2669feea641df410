package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// auth knows which clients may ask, and tells them apart. It is safe for concurrent use.
type auth struct {
	tokens atomic.Pointer[[][sha256.Size]byte] // of the keys that clients may send; nil: no key is needed
}

// maxClientKeys is the most keys in a file: each request is compared with all of them.
const maxClientKeys = 1000

var errNoKey = errors.New("this relay needs a key that it knows: set api_key or api_key_file in the Corefile of the client")

// load reads the keys of clients from a file: one on each line. Empty lines and lines
// that begin with # do not count. After an error the keys before stay in force.
func (a *auth) load(path string) error {
	raw, err := files.Read(path, maxWatched)
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
	addr := addressOf(r)
	if tokens := a.tokens.Load(); tokens != nil {
		sum := sha256.Sum256([]byte(keyOf(r)))
		if !holds(*tokens, sum) {
			return addr, errNoKey
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return pseudonym(sum[:], lookup.Site(addr).AsSlice()), nil
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return pseudonym(r.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo), nil
	}
	return addr, nil
}

// addressOf returns the address that a request comes from, for the log; the zero Addr: unknown.
func addressOf(r *http.Request) netip.Addr {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // all unknown clients share a limit
	return remote.Addr().Unmap().WithZone("")
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

// filesInterval is the time between two looks at the files of keys and certificates.
const filesInterval = 5 * time.Second

// watched is a group of files that are read together, again when one has changed.
type watched struct {
	what    string // in words
	paths   []string
	load    func() error // keeps what is in force if it returns an error
	read    string       // how the files were when they were read last
	trouble say.Trouble  // with reading them
}

// look reads the files if they have changed, and logs that. It logs each trouble once.
func (w *watched) look() {
	now := w.stamp()
	if now == w.read && !w.trouble.Lasts() {
		return
	}
	err := w.load()
	began, _ := w.trouble.Note(err)
	if err != nil {
		if began {
			log.Errorf("Cannot read the %s: %v. Those before stay in use; the files are read again every 5 seconds", w.what, err)
		}
		return
	}
	w.read = now
	log.Infof("The %s in %s are in use as they are now", w.what, strings.Join(w.paths, ", "))
}

// stamp describes the files: two equal stamps say that they have not changed. The content counts:
// one key may replace another of the same size and time.
func (w *watched) stamp() (all string) {
	for _, path := range w.paths {
		content, err := files.Read(path, maxWatched)
		all += fmt.Sprintf("%x %v;", sha256.Sum256(content), err)
	}
	return all
}

// maxWatched is the most bytes of a file of keys or certificates.
const maxWatched = 1 << 20

// openAll reads all files for the first time. The error names each that cannot be read.
func openAll(all []*watched) error {
	var errs []error
	for _, w := range all {
		w.read = w.stamp()
		errs = append(errs, w.load())
	}
	return errors.Join(errs...)
}

// certificates are the files of TLS, and what they held last. They are safe for
// concurrent use.
type certificates struct {
	cert, key, clientCA string // files; clientCA "": clients need no certificate
	current             atomic.Pointer[tls.Config]
}

// load reads the files. After an error those before stay in force.
func (c *certificates) load() error {
	cert, err := files.Read(c.cert, maxWatched)
	key, keyErr := files.Read(c.key, maxWatched)
	pair, pairErr := tls.X509KeyPair(cert, key)
	if err = cmp.Or(err, keyErr, pairErr); err != nil {
		return fmt.Errorf("%s and %s: %w", c.cert, c.key, err)
	}
	next := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if c.clientCA != "" {
		raw, err := files.Read(c.clientCA, maxWatched)
		if err != nil {
			return err
		}
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !next.ClientCAs.AppendCertsFromPEM(raw) {
			return fmt.Errorf("%s holds no certificate in PEM form", c.clientCA)
		}
	}
	c.current.Store(next)
	return nil
}

// config returns what a server needs. Each new connection uses the files that were read
// last.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	}
}

// check returns why the relay must not listen as its configuration says.
func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	switch {
	case (c.CertFile == "") != (c.CertKeyFile == ""):
		return errors.New("TLS needs a certificate and its key: give both -tls-cert and -tls-key")
	case c.ClientCAFile != "" && c.CertFile == "":
		return errors.New("certificates of clients need TLS: give -tls-cert and -tls-key, too")
	case c.Rate < 0 || c.Rate > 0 && c.Burst < 1:
		return errors.New("the rate of searches must be 0, for no limit, or more, and the burst at least 1")
	case c.EMA < 0:
		return errors.New("the threshold of -ema must be more than 0 deviations, or 0 for none")
	case c.Connections < 0:
		return errors.New("the number of connections must be at least 1")
	case c.Lameduck < 0:
		return errors.New("-lameduck must be 0 or more, such as 5s")
	case c.CertFile == "" && c.ClientKeyFile == "" && !c.Insecure && !isLoopback(c.Listen):
		return fmt.Errorf("%s can be reached by other machines, and any of them could use this relay and its key: "+
			"give -tls-cert and -tls-key, or -client-key-file, or listen on 127.0.0.1 "+
			"(-insecure-listen serves whoever can reach this address)", c.Listen)
	case c.Redis != nil && c.Redis.Target.InClear() && !c.InsecureRedis:
		return fmt.Errorf("the Redis at %s may be on another machine: who is on the way could read its password, and change lists and answers: "+
			"write rediss instead of redis in -redis (-insecure-redis uses it in clear text)", c.Redis.Target)
	}
	return nil
}

// warnings returns what works but protects less than it seems to.
func (c *Config) warnings() (all []string) {
	loopback := isLoopback(c.Listen)
	switch {
	case loopback:
	case c.CertFile == "" && c.ClientKeyFile == "":
		all = append(all, fmt.Sprintf("The relay on %s serves every client that can reach it, in clear text. Give -client-key-file, or -tls-cert, -tls-key and -tls-client-ca", c.Listen))
	case c.CertFile == "":
		all = append(all, fmt.Sprintf("The relay on %s has no TLS: the network can read the keys of clients and the prefixes. Give -tls-cert and -tls-key", c.Listen))
	case c.ClientCAFile == "" && c.ClientKeyFile == "":
		all = append(all, fmt.Sprintf("The relay on %s serves every client that can reach it. Give -client-key-file or -tls-client-ca", c.Listen))
	}
	if c.Redis != nil && c.Redis.Target.Password != "" {
		all = append(all, "Other users of this machine can read the password of Redis in -redis, in the list of processes. Give -redis-password-file or $"+RedisPasswordVariable)
	}
	if c.Redis != nil && c.Redis.Target.InClear() {
		all = append(all, "The connection to Redis has no TLS: where it leaves this machine, the network can read and change what relays share. Write rediss instead of redis in -redis")
	}
	if c.Admin != "" && !isLoopback(c.Admin) {
		all = append(all, fmt.Sprintf("Other machines can read the metrics on %s", c.Admin))
	}
	return all
}

// isLoopback reports whether only this machine can reach an address to listen on.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
