package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

// certificates are the files of TLS, and what they held last. They are safe for
// concurrent use.
type certificates struct {
	cert, key, clientCA string // files; clientCA "": clients need no certificate
	current             atomic.Pointer[tls.Config]
}

// load reads the files. After an error those before stay in force.
func (c *certificates) load() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.cert, c.key, err)
	}
	next := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if c.clientCA != "" {
		raw, err := os.ReadFile(c.clientCA)
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
	case c.CertFile == "" && c.ClientKeyFile == "" && !c.Insecure && !isLoopback(c.Listen):
		return fmt.Errorf("%s can be reached by other machines, and any of them could use this relay and its key: "+
			"give -tls-cert and -tls-key, or -client-key-file, or listen on 127.0.0.1 "+
			"(-insecure-listen serves whoever can reach this address)", c.Listen)
	case c.Redis != nil && c.Redis.Target.InClear() && !c.InsecureRedis:
		return fmt.Errorf("the Redis at %s is on another machine: who is on the way could read its password, and change lists and answers: "+
			"write rediss in place of redis in -redis (-insecure-redis uses it in clear text)", c.Redis.Target)
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
		all = append(all, "The connection to Redis has no TLS: the network can read and change what relays share. Write rediss in place of redis in -redis")
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
