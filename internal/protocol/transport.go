package protocol

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Here, and nowhere else, it is decided that a request was not sent.

// connecting watches a request on its way to a connection. Its hooks run in goroutines of the
// transport, also after the request has ended.
type connecting struct {
	wanted  atomic.Bool // the transport looks for a connection
	reached atomic.Bool // a machine, the server's or a proxy's, has taken a connection
	made    atomic.Bool // there is a connection that the request may have been written to
}

// watch returns a context that tells c how a request gets its connection to a host.
func (c *connecting) watch(ctx context.Context, host string) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.wanted.Store(true) },
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				c.reached.Store(true)
			}
		},
		TLSHandshakeDone: func(state tls.ConnectionState, err error) {
			if err == nil && (state.ServerName == "" || state.ServerName == host) { // not a proxy's
				c.made.Store(true)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { c.made.Store(true) },
	})
}

// judge returns err, as an *updater.NotSentError if the request got no connection: neither an
// old one nor a new one, with TLS if the server has that. A transport that does not say how it
// connects has sent everything.
func (c *connecting) judge(err error, server *url.URL) error {
	if !c.wanted.Load() || c.made.Load() {
		return err
	}
	return notSent(err, server, c.reached.Load())
}

// notSent says in words why a server could not be reached.
func notSent(err error, server *url.URL, reached bool) error {
	return &updater.NotSentError{Reached: reached, Err: &reworded{text: whyNotSent(err, server.Host), err: err}}
}

// whyNotSent names what is missing: the network, a name server, the name, somebody who listens,
// or TLS.
func whyNotSent(err error, host string) string {
	name, isName := errors.AsType[*net.DNSError](err)
	slow, isNet := errors.AsType[net.Error](err)
	switch {
	case isName && name.IsNotFound:
		return fmt.Sprintf("the name %s does not exist, says name server %s", name.Name, cmp.Or(name.Server, "of the system"))
	case isName && isNoNetwork(err):
		return fmt.Sprintf("there is no network: name server %s cannot be asked for %s (%s)", cmp.Or(name.Server, "of the system"), name.Name, name.Err)
	case isName:
		return fmt.Sprintf("no name server tells the address of %s: %s says %s", name.Name, cmp.Or(name.Server, "the system's"), name.Err)
	case isNoNetwork(err):
		return fmt.Sprintf("there is no network: no way to %s (%s)", host, lastOf(err))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s (%s)", addressIn(err, host), lastOf(err))
	case isTLS(err):
		return fmt.Sprintf("no TLS with %s: %v", host, err)
	case isNet && slow.Timeout():
		return fmt.Sprintf("%s does not take the connection (%v)", host, err)
	}
	return fmt.Sprintf("no connection to %s: %v", host, err)
}

// isNoNetwork reports whether this machine has no way to the other one. A name server's error
// has lost its number, and is told by its text.
func isNoNetwork(err error) bool {
	for _, number := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, number) {
			return true
		}
		if name, ok := errors.AsType[*net.DNSError](err); ok && strings.HasSuffix(name.Err, number.Error()) {
			return true
		}
	}
	return false
}

func isTLS(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	return certificate || record || alert || host || errors.Is(err, http.ErrSchemeMismatch)
}

// addressIn returns the address that was dialled, or else the host. The error of a proxy has the address
// further in.
func addressIn(err error, host string) string {
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Addr != nil {
			return op.Addr.String()
		}
	}
	return host
}

// lastOf returns the innermost error.
func lastOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// reacher is a transport that can make a connection without a request.
type reacher interface {
	Reach(ctx context.Context, server *url.URL) error
}

// Reach implements updater.Reacher: it resolves the name of the server, or of the proxy, makes a
// TCP connection, and closes it.
func (c *caller) Reach(ctx context.Context) error {
	var err error
	switch transport := c.cfg.Transport.(type) {
	case reacher:
		err = transport.Reach(ctx, c.base)
	case *http.Transport:
		err = dial(ctx, transport, c.base)
	}
	if err == nil {
		return nil
	}
	err = notSent(err, c.base, false)
	c.hideKey(&err)
	return err
}

// dial makes a connection as a transport does for a request, and closes it.
func dial(ctx context.Context, transport *http.Transport, server *url.URL) error {
	to := server
	if transport.Proxy != nil {
		if proxy, err := transport.Proxy(&http.Request{URL: server, Header: make(http.Header)}); err == nil && proxy != nil {
			to = proxy
		}
	}
	if transport.DialContext == nil {
		return nil // only in tests
	}
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[to.Scheme]
	}
	conn, err := transport.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// errOnce is the error of a request that net/http would have sent again.
var errOnce = errors.New("the connection ended before the answer, or the server refused the request; a request is not sent twice")

// Once returns a transport that writes each request at most once: the rules of the service count
// requests. An http.Transport writes some again by itself: a GET whose connection of HTTP/1 was
// kept and ends before the answer, and, up to six times, any request that a server of HTTP/2
// gives back by REFUSED_STREAM, PROTOCOL_ERROR or GOAWAY. Those fail here. A kept connection that
// has ended before anything was written is replaced. It is as safe for concurrent use as
// transport.
func Once(transport http.RoundTripper) http.RoundTripper { return once{transport} }

// Fresh returns a transport like t that makes a connection for each request. It is for requests
// that are minutes apart: whether an old connection still lives shows only when one is lost on it.
// A t that is no *http.Transport is returned as it is.
func Fresh(t http.RoundTripper) http.RoundTripper {
	kept, ok := t.(*http.Transport)
	if !ok {
		return t
	}
	fresh := kept.Clone()
	fresh.DisableKeepAlives = true
	return fresh
}

type once struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. Once the headers are written, the next connection for
// the same request ends it: HTTP/2 looks at the context before it writes headers; HTTP/1, which
// does not, has the connection for itself.
func (t once) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var written atomic.Bool
	trace := &httptrace.ClientTrace{
		WroteHeaders: func() { written.Store(true) },
		GetConn: func(string) {
			if written.Load() {
				cancel(errOnce)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if !written.Load() {
				return
			}
			cancel(errOnce)
			if !isHTTP2(info.Conn) {
				info.Conn.Close()
			}
		},
	}
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		if context.Cause(ctx) == errOnce {
			err = errOnce
		}
		cancel(nil)
		return nil, err
	}
	answer.Body = canceling{answer.Body, cancel}
	return answer, nil
}

// CloseIdleConnections lets http.Client close the transport's connections.
func (t once) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func isHTTP2(conn net.Conn) bool {
	secure, ok := conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// canceling is a body whose request ends with it.
type canceling struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b canceling) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// parseCA returns the certificates of a PEM text, nil for "". It is an error if there is
// none.
func parseCA(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("there is no certificate in PEM, such as -----BEGIN CERTIFICATE-----")
	}
	return roots, nil
}

// CertFiles are the files, in PEM, of a certificate and its key. The zero CertFiles is none.
type CertFiles struct{ Cert, Key string }

// TLS returns how a client speaks TLS: ca as in Config.CA, cert read again for each
// connection, since certificates are renewed. It is an error if one of the files cannot be
// used now; if that happens later, the connection fails.
func TLS(ca string, cert CertFiles) (*tls.Config, error) {
	roots, err := parseCA(ca)
	if err != nil || cert == (CertFiles{}) {
		return &tls.Config{RootCAs: roots}, err
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert.Cert, cert.Key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert.Cert, cert.Key, err)
		}
		return &pair, nil
	}
	_, err = load(nil)
	return &tls.Config{RootCAs: roots, GetClientCertificate: load}, err
}
