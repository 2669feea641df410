package protocol

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

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

// CloseIdleConnections lets http.Client close those of the transport.
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
