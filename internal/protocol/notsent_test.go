package protocol

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// tcpServer takes connections, and does to each what handle does.
func tcpServer(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn)
		}
	}()
	return l.Addr().String()
}

// nameServer answers each question with a code; if that is 0, the address of every name is 127.0.0.1.
func nameServer(t *testing.T, code int) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetRcode(r, code)
		if q := r.Question[0]; code == 0 && q.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

// A request that got no connection was not sent; the error says what is missing. One that got a
// connection was sent, whatever became of it.
func TestARequestWithoutAConnectionWasNotSent(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = nil
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	hang := func(conn net.Conn) { defer conn.Close(); time.Sleep(time.Minute) }
	status := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	t.Cleanup(status.Close)
	reset := tcpServer(t, func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Read(make([]byte, 1)); conn.Close() })
	noProxy := testkit.FreeAddr(t)
	proxied := http.DefaultTransport.(*http.Transport).Clone()
	proxied.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: noProxy})
	for name, test := range map[string]struct {
		cfg             Config
		unsent, reached bool
		say             string
	}{
		"nobody listens":         {Config{Endpoint: "http://" + testkit.FreeAddr(t)}, true, false, "nothing listens at 127.0.0.1:"},
		"no proxy":               {Config{Endpoint: "https://sb.example", Transport: proxied}, true, false, "nothing listens at " + noProxy},
		"no network":             {Config{Endpoint: "http://[100::1]"}, true, false, ""},
		"the name is not found":  {Config{Endpoint: "http://sb.example", Resolvers: []string{nameServer(t, 3)}}, true, false, "the name sb.example does not exist"},
		"the name server fails":  {Config{Endpoint: "http://sb.example", Resolvers: []string{nameServer(t, 2)}}, true, false, "no name server tells the address of sb.example"},
		"no name server listens": {Config{Endpoint: "http://sb.example", Resolvers: []string{testkit.FreeAddr(t)}}, true, false, "no name server tells the address of sb.example"},
		"TLS hangs":              {Config{Endpoint: "https://" + tcpServer(t, hang)}, true, true, "does not take the connection"},
		"no certificate we know": {Config{Endpoint: untrusted.URL}, true, true, "no TLS with 127.0.0.1:"},
		"no TLS":                 {Config{Endpoint: "https://" + strings.TrimPrefix(status.URL, "http://")}, true, true, "no TLS with 127.0.0.1:"},
		"a status":               {Config{Endpoint: status.URL}, false, false, ""},
		"a reset":                {Config{Endpoint: "http://" + reset}, false, false, ""},
		"no answer":              {Config{Endpoint: "http://" + tcpServer(t, hang)}, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clientOf(t, test.cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := searchOnce(ctx, c)
			unsent, ok := errors.AsType[*updater.NotSentError](err)
			if err == nil || ok != test.unsent || ok && unsent.Reached != test.reached || !strings.Contains(err.Error(), test.say) {
				t.Fatalf("%v, not sent: %t, want %t", err, ok, test.unsent)
			}
			if dns, ok := errors.AsType[*net.DNSError](err); ok != (test.cfg.Resolvers != nil) || ok && dns.Server != test.cfg.Resolvers[0] {
				t.Errorf("%v, want to read which name server was asked, of %v", err, test.cfg.Resolvers)
			}
			if err := c.Reach(ctx); ok && !test.reached && !isNotSent(err) {
				t.Errorf("without a request: %v", err)
			}
		})
	}
}

// Who is on the way shows a certificate, which is quoted before it is believed.
func TestWhatAServerShowsIsFitForALogLine(t *testing.T) {
	cert, key := testkit.Certificate(t, t.TempDir(), "x\n[ERROR] forged\x1b[2J")
	pair, err := tls.LoadX509KeyPair(cert, key)
	testkit.Must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", strings.Repeat("x", 20_000))
	}))
	server.TLS, server.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{pair}}, log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	long := httptest.NewServer(server.Config.Handler)
	defer long.Close()
	for endpoint, want := range map[string]string{
		strings.Replace(server.URL, "127.0.0.1", "sb.example", 1): "is valid for x [ERROR] forged [2J, not sb.example",
		long.URL: "an answer of type ",
	} {
		err := searchOnce(t.Context(), clientOf(t, Config{Endpoint: endpoint, Resolvers: []string{nameServer(t, 0)}}))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > maxErrorText {
			t.Errorf("%s: %.2000q", endpoint, err)
		}
	}
}

func TestAMadeConnectionIsReachable(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	for _, host := range []string{"127.0.0.1", "bücher.example"} {
		endpoint := strings.Replace(server.URL, "127.0.0.1", host, 1)
		c := clientOf(t, Config{Endpoint: endpoint, Resolvers: []string{nameServer(t, 0)}})
		if err := c.Reach(t.Context()); err != nil || asked.Load() != 0 {
			t.Errorf("%s: %v, %d requests", host, err, asked.Load())
		}
	}
}

// A proxy that is spoken to by TLS is not the server.
func TestAProxyThatDoesNotReachTheServerHasNotSent(t *testing.T) {
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }))
	defer proxy.Close()
	c := clientOf(t, Config{Endpoint: "https://sb.example", Resolvers: []string{nameServer(t, 0)}, CA: pemOf(proxy.Certificate().Raw)})
	through, err := url.Parse(strings.Replace(proxy.URL, "127.0.0.1", "example.com", 1))
	testkit.Must(t, err)
	c.cfg.Transport.(*http.Transport).Proxy = http.ProxyURL(through)
	err = searchOnce(t.Context(), c)
	if unsent, ok := errors.AsType[*updater.NotSentError](err); !ok || !unsent.Reached {
		t.Errorf("got %v", err)
	}
	if want := "no connection to sb.example: the proxy " + through.Host + " answers with status 502"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want to read %q", err, want)
	}
}

// gone is a transport without a network, for the hosts in it.
type gone map[string]bool

func (g gone) RoundTrip(r *http.Request) (*http.Response, error) {
	if g[r.URL.Host] {
		httptrace.ContextClientTrace(r.Context()).GetConn(r.URL.Host)
		return nil, errors.New("no network")
	}
	return &http.Response{StatusCode: 503, Header: make(http.Header), Body: http.NoBody}, nil
}

// Of several endpoints nothing was sent only if none was sent anything.
func TestARequestThatOneEndpointGotWasSent(t *testing.T) {
	for name, test := range map[string]struct {
		gone   gone
		unsent bool
	}{
		"none":   {gone{"a": true, "b": true}, true},
		"first":  {gone{"b": true}, false},
		"second": {gone{"a": true}, false},
	} {
		for method, ask := range map[string]func(context.Context, Client) error{"fetch": fetchOnce, "search": searchOnce} {
			t.Run(name+", "+method, func(t *testing.T) {
				urls := []string{"http://a", "http://b"}
				f := NewFailover(urls, []Client{clientOf(t, Config{Endpoint: urls[0], Transport: test.gone}), clientOf(t, Config{Endpoint: urls[1], Transport: test.gone})})
				err := ask(t.Context(), f)
				if isNotSent(err) != test.unsent {
					t.Fatalf("%v: not sent: %t", err, isNotSent(err))
				}
				if _, sent := errors.AsType[*updater.StatusError](err); sent == test.unsent {
					t.Errorf("%v: a status: %t", err, sent)
				}
				if test.unsent { // an endpoint that was not reached has no back-off
					if err := ask(t.Context(), f); !strings.Contains(err.Error(), "http://a: ") || !strings.Contains(err.Error(), "http://b: ") {
						t.Errorf("the second time: %v", err)
					}
				}
			})
		}
	}
}
