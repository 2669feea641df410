package test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

// flood is many queries that are made to cost much.
type flood struct {
	name       string
	sample     bool               // tried by each go test
	names      func(n int) string // of the nth query
	lists      func() []string    // expressions to be put into a list
	from       func(n int) netip.Addr
	odd        bool          // of all types and classes
	search     time.Duration // what an answer of the server takes
	goroutines int           // at most this number more than before
	drowns     bool          // confirmations of others are lost in it, which nothing can help
}

const floodNames = 200_000

var longLabel = strings.Repeat("a", 63)

// floods are ordered from the mildest to the worst.
var floods = []flood{
	{name: "127 labels", names: func(n int) string { return fmt.Sprintf("%d.", n%10) + strings.Repeat("a.", 126) }, lists: nothing, from: manyNetworks, goroutines: 1000},
	{name: "255 bytes", names: longName, lists: nothing, from: manyNetworks, goroutines: 1000},
	{name: "all types and classes", names: collides, lists: colliding, from: manyNetworks, odd: true, search: 50 * time.Millisecond, goroutines: 6_000},
	{name: "one client", names: collides, lists: colliding, from: oneClient, search: 50 * time.Millisecond, goroutines: 1500},
	{name: "one client, one prefix", sample: true, names: collidesAgain, lists: collidingOnce, from: oneClient, search: time.Second, goroutines: 3000},
	{name: "100,000 clients of one /32", sample: true, names: collides, lists: colliding, from: oneNetwork, search: 700 * time.Millisecond, goroutines: 1500},
	{name: "100,000 clients, one prefix", names: collidesAgain, lists: collidingOnce, from: manyNetworks, search: 3 * time.Second, goroutines: 6_000},
	{name: "100,000 clients of many /32", names: collides, lists: colliding, from: manyNetworks, search: 50 * time.Millisecond, goroutines: 6_000},
	{name: "and the server is slow", names: collides, lists: colliding, from: manyNetworks, search: 3 * time.Second, goroutines: 6_000, drowns: true},
}

func nothing() []string { return nil }

func longName(n int) string {
	return fmt.Sprintf("%053d.", n) + longLabel + "." + longLabel + "." + longLabel + ".a."
}

// collides returns names that are in a list by their prefix only.
func collides(n int) string { return fmt.Sprintf("c%d.flood.example.", n%floodNames) }

func colliding() (expressions []string) {
	for n := range floodNames {
		expressions = append(expressions, strings.TrimSuffix(collides(n), ".")+"/")
	}
	return expressions
}

// collidesAgain returns random subdomains of one such name.
func collidesAgain(n int) string { return fmt.Sprintf("c%d.once.example.", n) }

func collidingOnce() []string { return []string{"once.example/"} }

// Clients of floods. Each IPv6 client has a /56 of its own: that is a client for the
// limit.

func oneClient(int) netip.Addr { return netip.MustParseAddr("198.51.100.7") }

func oneNetwork(n int) netip.Addr {
	n %= 100_000
	return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

func manyNetworks(n int) netip.Addr {
	n %= 100_000
	return netip.AddrFrom16([16]byte{0x2a, byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

// otherClient returns a client that takes part in no flood.
func otherClient(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n), byte(n >> 8), 1}) }

// manyClients is a plugin that has a query come from the address that its option 65001
// carries.
const manyClients = "manyclients"

const clientOption = 65_001

func init() {
	plugin.Register(manyClients, func(c *caddy.Controller) error {
		c.Next()
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
			return plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				if opt := r.IsEdns0(); opt != nil {
					for _, o := range opt.Option {
						if local, ok := o.(*dns.EDNS0_LOCAL); ok && local.Code == clientOption {
							w = &clientWriter{w, &net.UDPAddr{IP: local.Data, Port: 53053}}
						}
					}
				}
				return plugin.NextOrFailure(manyClients, next, ctx, w, r)
			})
		})
		return nil
	})
}

type clientWriter struct {
	dns.ResponseWriter
	remote net.Addr
}

// RemoteAddr implements dns.ResponseWriter.
func (w *clientWriter) RemoteAddr() net.Addr { return w.remote }

// floodCorefile answers at once, with the default limit.
func (w *world) floodCorefile() string {
	template := "template IN A {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}\n\ttemplate ANY ANY {\n\t\trcode NOERROR\n\t}"
	text := w.corefile("lists se-4b", "cache 10000")
	return strings.NewReplacer("\tcache\n", "", "errors", "errors\n\t"+manyClients, "forward . "+w.upstream, template).Replace(text)
}

func floodQuery(name string, qtype, class uint16, client netip.Addr) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.Question[0].Qclass = class
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: clientOption, Data: client.AsSlice()})
	return m
}

// pour sends the queries of a flood that are due, from one of two sockets. It drops the
// answers.
func (w *world) pour(ctx context.Context, f flood, socket, rate int) {
	conn, err := net.Dial("udp", w.address("udp"))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer conn.Close()
	go func() {
		for buffer := make([]byte, 1<<16); ; {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
		}
	}()
	begun := time.Now()
	for n := 0; every(ctx, 2*time.Millisecond); {
		for due := int(time.Since(begun).Seconds() * float64(rate)); n < due && ctx.Err() == nil; n++ {
			nth := 2*n + socket
			qtype, class := dns.TypeA, uint16(dns.ClassINET)
			if f.odd {
				qtype, class = uint16(nth), uint16(nth/7%256)
			}
			query, err := floodQuery(f.names(nth), qtype, class, f.from(nth)).Pack()
			if err != nil {
				w.t.Errorf("%s: %v", f.name, err)
				return
			}
			conn.Write(query)
		}
	}
}
