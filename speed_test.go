package safebrowsing

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// BenchmarkServeDNS is what the plugin adds to the handling of a clean name.
func BenchmarkServeDNS(b *testing.B) {
	database := new(lookup.Database)
	builder := prefixset.NewBuilder(1)
	builder.Add(make([]byte, 4), 4)
	database.Publish([]lookup.List{{Name: "se-4b", Set: builder.Set()}})
	checker, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: noSearcher{}})
	if err != nil {
		b.Fatal(err)
	}
	defer checker.Close()
	passed := 0
	s := newPlugin(config.Config{Block: config.Block{Zones: []string{"."}, Reply: answer.Reply{TTL: time.Minute}}}, plugin.HandlerFunc(
		func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
			passed++
			return dns.RcodeSuccess, nil
		}))
	s.block.Use(engine.ServiceForTests(checker))
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

// oneClient is a writer that has the address of its client, as those of servers have. The one that it is made
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
