// Package conntrack stands in for github.com/mwitkow/go-conntrack in the program for routers, see go.work. CoreDNS is
// linked with it by way of Prometheus's configuration of HTTP clients, and uses none. The real one serves pages of
// golang.org/x/net/trace; their templates look for methods by name, so that the linker keeps the methods of all
// types: a seventh of the program for routers.
package conntrack

import (
	"context"
	"net"
)

// DialFunc connects, as the method DialContext of a net.Dialer.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Option changes which DialFunc NewDialContextFunc returns.
type Option func(DialFunc) DialFunc

// NewDialContextFunc returns the DialFunc of its options, else a net.Dialer's.
func NewDialContextFunc(options ...Option) func(context.Context, string, string) (net.Conn, error) {
	dial := DialFunc(new(net.Dialer).DialContext)
	for _, option := range options {
		dial = option(dial)
	}
	return dial
}

// DialWithDialContextFunc makes dial what connects.
func DialWithDialContextFunc(dial func(context.Context, string, string) (net.Conn, error)) Option {
	return func(DialFunc) DialFunc { return dial }
}

// DialWithName names connections in metrics. Here it does nothing.
func DialWithName(string) Option { return same }

// DialWithTracing traces connections. Here it does nothing.
func DialWithTracing() Option { return same }

func same(dial DialFunc) DialFunc { return dial }
