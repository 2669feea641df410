package ownlist

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
)

// errInward is why a redirect is not followed: somebody outside must not have this server ask
// what only machines inside may, such as a router's page or the metadata of a cloud.
var errInward = errors.New("a redirect from a public address to one that is not public")

// isInward reports whether an address is not public: of this machine, of a private network, of
// a link, or shared by a provider (RFC 6890).
func isInward(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || shared.Contains(a)
}

// shared are addresses between a provider and its customers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// route is what is known of the way of one download.
type route struct {
	mu     sync.Mutex
	public bool // a server at a public address has answered; guarded by mu
}

type routeKey struct{}

func withRoute(ctx context.Context) context.Context {
	return context.WithValue(ctx, routeKey{}, new(route))
}

// inwards is a transport that refuses to go from a public address inwards. It looks at the
// address of the connection: a name can have any.
type inwards struct {
	http.RoundTripper
	inward func(netip.Addr) bool
}

// RoundTrip implements http.RoundTripper. A connection that leads inwards after a public one
// gets no request.
func (t inwards) RoundTrip(r *http.Request) (*http.Response, error) {
	way, _ := r.Context().Value(routeKey{}).(*route)
	if way == nil {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, refuse := context.WithCancelCause(r.Context())
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		to, ok := info.Conn.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return
		}
		way.mu.Lock()
		defer way.mu.Unlock()
		switch inward := t.inward(to.AddrPort().Addr()); {
		case inward && way.public:
			refuse(fmt.Errorf("%w, %s", errInward, to.IP))
			info.Conn.Close() // before the request is written
		case !inward:
			way.public = true
		}
	}}
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errInward) {
			err = cause
		}
		refuse(nil)
	}
	return answer, err
}

// CloseIdleConnections lets http.Client close those of the transport.
func (t inwards) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
