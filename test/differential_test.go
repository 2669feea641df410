package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var differentialQueries = flag.Int("differential.queries", 1_500, "how many queries TestAnswersForSafeNamesAreThoseOfCoreDNSAlone compares, over all transports together")

// differentialTypes are the types of queries: all that have a name but transfers of zones,
// which the server treats as streams, and some without.
var differentialTypes = func() []uint16 {
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(dns.TypeToString)), func(t uint16) bool {
		return t == dns.TypeAXFR || t == dns.TypeIXFR
	})
	return append(all, 999, 65_280, 65_535)
}()

// safeQuery returns a query: of any type, class and EDNS, for a name that is clean,
// listed by collision only, not public, or odd.
func safeQuery(r *rand.Rand) *dns.Msg {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	name := pick("www.", "a.b.c.d.e.f.", "MiXeD.", "_sip._tcp.", `a\.b.`, `\000\255.`, "xn--bcher-kva.", "*.", "nx.", "fail.", "refuse.", "big.", "") +
		pick("example.org.", "example.co.uk.", "shared.example.com.", "x.shared.example.com.", "github.io.", "nas.local.", "1.2.3.4.", "2.0.192.in-addr.arpa.", "com.", ".")
	name = strings.ReplaceAll(name, "..", ".")
	m := new(dns.Msg).SetQuestion(name, differentialTypes[r.IntN(len(differentialTypes))])
	if r.IntN(3) == 0 { // these are what the plugin looks at
		m.Question[0].Qtype = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeANY}[r.IntN(6)]
	}
	m.Id = uint16(r.Uint32())
	m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData = r.IntN(8) > 0, r.IntN(8) == 0, r.IntN(8) == 0
	if r.IntN(20) == 0 {
		m.Question[0].Qclass = []uint16{dns.ClassCHAOS, dns.ClassHESIOD, dns.ClassANY, 4_711}[r.IntN(4)]
	}
	if r.IntN(4) == 0 {
		return m
	}
	m.SetEdns0([]uint16{0, 512, 1232, 4096}[r.IntN(4)], r.IntN(2) == 0)
	switch opt := m.IsEdns0(); r.IntN(8) {
	case 0:
		opt.Option = append(opt.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"})
	case 1:
		opt.Option = append(opt.Option, &dns.EDNS0_NSID{Code: dns.EDNS0NSID})
	case 2:
		opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: 65_001, Data: []byte("x")})
	case 3:
		opt.SetVersion(1)
	case 4:
		opt.SetZ(0x0101)
	}
	return m
}

// constantUpstream starts a name server whose answer depends on the question alone. It counts the queries by TCP.
func constantUpstream(t *testing.T) (address string, byTCP *atomic.Int64) {
	byTCP = new(atomic.Int64)
	return startNameServer(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if w.RemoteAddr().Network() == "tcp" {
			byTCP.Add(1)
		}
		m := new(dns.Msg).SetReply(r)
		q := m.Question[0]
		first, _, _ := strings.Cut(q.Name, ".")
		m.Rcode = map[string]int{"nx": dns.RcodeNameError, "fail": dns.RcodeServerFailure, "refuse": dns.RcodeRefused}[first]
		text, known := map[uint16]string{
			dns.TypeA: "A 192.0.2.%d", dns.TypeANY: "A 192.0.2.%d", dns.TypeCNAME: "CNAME t%d.example.net.", dns.TypeAAAA: "CNAME t%d.example.net.",
			dns.TypeHTTPS: "HTTPS %d .", dns.TypeTXT: "TXT %d",
		}[q.Qtype]
		records := map[bool]int{true: 30, false: 1}[first == "big"] // more than 512 bytes
		for i := 0; known && m.Rcode == dns.RcodeSuccess && i < records; i++ {
			rr, _ := dns.NewRR(fmt.Sprintf(". 300 IN "+text, len(q.Name)+i))
			rr.Header().Name, rr.Header().Class = q.Name, q.Qclass
			m.Answer = append(m.Answer, rr)
		}
		if opt := r.IsEdns0(); opt != nil {
			m.SetEdns0(1232, opt.Do())
		}
		w.WriteMsg(m)
	}), byTCP
}

type exchange func(query []byte) (answer []byte, err error)

// transport is a way to ask a host; dial is called once by each goroutine that asks.
type transport struct {
	name, scheme string
	port         int
	dial         func(ctx context.Context, address string, trust *tls.Config) (ask exchange, end func(), err error)
}

var differentialTransports = []transport{
	{"UDP", "", 5301, dialing("udp")},
	{"TCP", "", 5301, dialing("tcp")},
	{"TLS", "tls://", 5302, dialing("tls")},
	{"HTTPS", "https://", 5303, func(_ context.Context, address string, trust *tls.Config) (exchange, func(), error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}, Timeout: 10 * time.Second}
		return func(query []byte) ([]byte, error) {
			r, err := client.Post("https://"+address+"/dns-query", "application/dns-message", bytes.NewReader(query))
			if err != nil {
				return nil, err
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			head := fmt.Sprintln(r.StatusCode, r.Header["Content-Type"], r.Header["Cache-Control"])
			return append([]byte(head), body...), err
		}, client.CloseIdleConnections, nil
	}},
	{"QUIC", "quic://", 5304, func(ctx context.Context, address string, trust *tls.Config) (exchange, func(), error) {
		trust = trust.Clone()
		trust.NextProtos = []string{"doq"}
		conn, err := quic.DialAddr(ctx, address, trust, nil)
		if err != nil {
			return nil, nil, err
		}
		return func(query []byte) ([]byte, error) {
			query[0], query[1] = 0, 0 // RFC 9250 section 4.2.1
			stream, err := conn.OpenStreamSync(ctx)
			if err != nil {
				return nil, err
			}
			return overConn(ctx, doqStream{Stream: stream}, query)
		}, func() { conn.CloseWithError(0, "") }, nil
	}},
}

func dialing(network string) func(context.Context, string, *tls.Config) (exchange, func(), error) {
	return func(ctx context.Context, address string, trust *tls.Config) (ask exchange, end func(), err error) {
		var conn net.Conn
		if network == "tls" {
			conn, err = (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", address)
		} else {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
		return func(query []byte) ([]byte, error) { return overConn(ctx, conn, query) }, func() { conn.Close() }, err
	}
}

// overConn exchanges messages that have their length in front (RFC 1035 section 4.2.2), but for UDP.
func overConn(ctx context.Context, conn net.Conn, query []byte) ([]byte, error) {
	over := dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize - 1}
	over.SetDeadline(until(ctx))
	if _, err := over.Write(query); err != nil {
		return nil, err
	}
	if stream, ok := conn.(doqStream); ok {
		stream.Close() // after its one query
	}
	return over.ReadMsgHeader(nil)
}

type doqStream struct {
	net.Addr
	*quic.Stream
}

func (s doqStream) LocalAddr() net.Addr  { return s }
func (s doqStream) RemoteAddr() net.Addr { return s }

func transportNamed(name string) transport {
	return differentialTransports[slices.IndexFunc(differentialTransports, func(tr transport) bool { return tr.name == name })]
}

func (tr transport) ask(ctx context.Context, address string, trust *tls.Config, m *dns.Msg) (*dns.Msg, error) {
	ask, end, err := tr.dial(ctx, address, trust)
	if err != nil {
		return nil, err
	}
	defer end()
	return tr.over(ask, m)
}

func (tr transport) over(ask exchange, m *dns.Msg) (*dns.Msg, error) {
	query, err := m.Pack()
	if err != nil {
		return nil, err
	}
	raw, err := ask(query)
	if tr.name == "HTTPS" {
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	answer := new(dns.Msg)
	if err == nil {
		err = answer.Unpack(raw)
	}
	return answer, err
}

// until is when an exchange ends: with its context, or after ten seconds.
func until(ctx context.Context) time.Time {
	if end, ok := ctx.Deadline(); ok {
		return end
	}
	return time.Now().Add(10 * time.Second)
}

// overAll is a Corefile that serves every transport with the same plugins.
func overAll(t *testing.T, host, plugins string) string {
	certificate, key := testkit.Certificate(t, t.TempDir())
	var corefile strings.Builder
	for _, tr := range differentialTransports {
		if tr.name == "TCP" { // with UDP
			continue
		}
		secure := ""
		if tr.scheme != "" {
			secure = "tls " + certificate + " " + key
		}
		fmt.Fprintf(&corefile, "%s.:%d {\nbind %s\n%s\n%s\n}\n", tr.scheme, tr.port, host, secure, plugins)
	}
	return corefile.String()
}

// The answer for a safe name equals the answer of the same CoreDNS without the plugin, to the byte.
func TestAnswersForSafeNamesAreThoseOfCoreDNSAlone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs loopback addresses of its own")
	}
	for _, property := range []string{"", "inspect cname"} {
		w := newWorld(t)
		w.publish("se-4b", "shared.example.com/") // suspected; the server does not confirm it
		upstream, byTCP := constantUpstream(t)
		with := fmt.Sprintf("safebrowsing {\nendpoint %s\ndb %s\nlimit off\nconfirm_timeout 9s\n%s\n}", w.endpoint, w.db, property)
		hosts := []string{ownHost(), ownHost()}
		for i, stanza := range []string{"", with} { // alone, and with the plugin
			startInstance(t, overAll(t, hosts[i], stanza+"\nforward . "+upstream))
		}
		testkit.Until(w.t, "the lists", func() bool { return len(w.fetches()) > 0 && w.ready() })
		for _, tr := range differentialTransports {
			t.Run(strings.TrimSpace(tr.name+" "+property), func(t *testing.T) {
				compare(t, tr, hosts, *differentialQueries/2/len(differentialTransports))
			})
		}
		testkit.Equal(t, "names were suspected, and queries came to the name server by TCP", [2]bool{len(w.searches()) > 0, byTCP.Load() > 0}, [2]bool{true, true})
	}
}

// compare asks both hosts the same over one transport, from several goroutines.
func compare(t *testing.T, tr transport, hosts []string, queries int) {
	const askers = 4
	trust := &tls.Config{InsecureSkipVerify: true} // the certificate is our own
	var wg sync.WaitGroup
	for asker := range askers {
		wg.Go(func() {
			var ask []exchange
			for _, host := range hosts {
				exchange, end, err := tr.dial(t.Context(), fmt.Sprintf("%s:%d", host, tr.port), trust)
				if err != nil {
					t.Error(err)
					return
				}
				defer end()
				ask = append(ask, exchange)
			}
			r := rand.New(rand.NewPCG(uint64(asker), uint64(tr.port)))
			for range queries / askers {
				m := safeQuery(r)
				query, err := m.Pack()
				if err != nil {
					t.Errorf("%v of\n%v", err, m)
					return
				}
				alone, aloneErr := ask[0](bytes.Clone(query))
				with, withErr := ask[1](bytes.Clone(query))
				if !bytes.Equal(alone, with) || aloneErr != nil || withErr != nil {
					t.Errorf("%v\nalone:       %q %v\nwith plugin: %q %v", m, alone, aloneErr, with, withErr)
					return
				}
			}
		})
	}
	wg.Wait()
}
