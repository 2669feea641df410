package safebrowsing

import (
	"context"
	"net"
	"testing"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// BenchmarkServeDNS is what the plugin adds to the handling of a clean name.
func BenchmarkServeDNS(b *testing.B) {
	s, passed := clean(b, 0), 0
	s.Next = plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		passed++
		return dns.RcodeSuccess, nil
	})
	m := new(dns.Msg).SetQuestion("www.static.example.com.", dns.TypeA)
	w := newOneClient()
	b.ReportAllocs()
	for b.Loop() {
		s.ServeDNS(context.Background(), w, m)
	}
	if passed < b.N {
		b.Errorf("%d of %d queries passed", passed, b.N)
	}
}

type noSearcher struct{}

func (noSearcher) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, lookup.ErrBackoff
}

// oneClient is a writer that knows its client's address, as a server's writer does. The one that it is made
// from makes it anew for each call.
type oneClient struct {
	test.ResponseWriter
	from *net.UDPAddr
}

func newOneClient() *oneClient {
	return &oneClient{from: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 20), Port: 53053}}
}

// RemoteAddr implements dns.ResponseWriter.
func (w *oneClient) RemoteAddr() net.Addr { return w.from }
