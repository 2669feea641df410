package protocol

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestCookiesAreNotSentBack(t *testing.T) {
	var requests atomic.Int32
	wire := unhex(t, wireNothingFound)
	socket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 || r.Header.Get("Cookie") != "" {
			t.Errorf("cookies: %v", r.Header)
		}
		requests.Add(1)
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1", Path: "/"})
		serving(binaryForm, wire)(w, r)
	}))
	defer socket.Close()
	c := clientOf(t, socket.URL)
	defer c.Close()
	for range 3 {
		if err := searchError(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if requests.Load() != 3 {
		t.Errorf("%d requests", requests.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		socket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL+r.URL.String())
			w.WriteHeader(status)
		}))
		c := clientOf(t, socket.URL)
		err := searchError(t.Context(), c)
		if e, ok := errors.AsType[*updater.StatusError](err); !ok || e.Code != status {
			t.Errorf("status %d: %v", status, err)
		}
		c.Close()
		socket.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other server got %d requests", n)
	}
}

// serveName answers questions for the addresses of a name, on UDP and with
// 127.0.0.1, and returns its own address.
func serveName(t *testing.T, name string) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		switch asked := q.Question[0]; {
		case asked.Name != name:
			m.Rcode = dns.RcodeNameError
		case asked.Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(127, 0, 0, 1),
			}}
		}
		w.WriteMsg(m)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return conn.LocalAddr().String()
}

func TestConfiguredResolversFindTheServer(t *testing.T) {
	socket := httptest.NewServer(serving(binaryForm, unhex(t, wireFound)))
	defer socket.Close()
	_, port, err := net.SplitHostPort(socket.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewV5(Config{
		Endpoint: "http://made-up.safebrowsing.example:" + port, Key: testKey, UserAgent: "test/1",
		Resolvers: []string{serveName(t, "made-up.safebrowsing.example.")},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.cfg.Transport.(*http.Transport).Proxy = nil
	if answer, err := c.Search(t.Context(), []lookup.Prefix{"\x1d\x32\xc5\x08"}); err != nil || len(answer.Threats) != 1 {
		t.Errorf("got %v, %v", answer, err)
	}
}

// serving is always as a handler.
func serving(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Write(body)
	}
}

func TestResolversTakeTurns(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0") // takes questions, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	r := Resolver([]string{dead.LocalAddr().String(), "127.0.0.1:1"})
	for _, want := range []string{dead.LocalAddr().String(), "127.0.0.1:1", dead.LocalAddr().String()} {
		conn, err := r.Dial(t.Context(), "udp", "192.0.2.1:53")
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		conn.Close()
	}
}

func TestCertificatesAreChecked(t *testing.T) {
	asked := false
	socket := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	socket.Config.ErrorLog = log.New(io.Discard, "", 0)
	socket.StartTLS()
	defer socket.Close()
	c := clientOf(t, socket.URL)
	defer c.Close()
	err := searchError(t.Context(), c)
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok || asked {
		t.Errorf("got %v, asked: %t", err, asked)
	}
	checkSecrets(t, err)
}

// The environment is read once per process, so that only the function can be
// looked at.
func TestTransportTakesTheProxyOfTheEnvironmentAndBoundsEachStep(t *testing.T) {
	tr := Transport([]string{"127.0.0.1:53"}, new(tls.Config))
	if tr.Proxy == nil {
		t.Fatal("no proxy is ever used")
	}
	local := &http.Request{URL: &url.URL{Scheme: "http", Host: "127.0.0.1"}}
	if proxy, err := tr.Proxy(local); proxy != nil || err != nil {
		t.Errorf("the own machine is reached through %v, %v", proxy, err)
	}
	if tr.TLSHandshakeTimeout == 0 || tr.ResponseHeaderTimeout == 0 || tr.MaxResponseHeaderBytes == 0 || tr.DialContext == nil {
		t.Error("a step is not bounded")
	}
}
