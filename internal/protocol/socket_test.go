package protocol

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
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
		testkit.Must(t, searchError(t.Context(), c))
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

func TestConfiguredResolversFindTheServer(t *testing.T) {
	socket := httptest.NewServer(serving(binaryForm, unhex(t, wireFound)))
	defer socket.Close()
	_, port, err := net.SplitHostPort(socket.Listener.Addr().String())
	testkit.Must(t, err)
	c, err := NewV5(Config{
		Endpoint: "http://made-up.safebrowsing.example:" + port, Key: testKey, UserAgent: "test/1",
		Resolvers: []string{nameServer(t, 0)},
	})
	testkit.Must(t, err)
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
	testkit.Must(t, err)
	defer dead.Close()
	r := Resolver([]string{dead.LocalAddr().String(), "127.0.0.1:1"})
	for _, want := range []string{dead.LocalAddr().String(), "127.0.0.1:1", dead.LocalAddr().String()} {
		conn, err := r.Dial(t.Context(), "udp", "192.0.2.1:53")
		testkit.Must(t, err)
		if got := conn.RemoteAddr().String(); got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		conn.Close()
	}
}

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestOnlyTheGivenAuthoritiesVouchForTheServer(t *testing.T) {
	judge := protocoltest.New(t)
	server := httptest.NewUnstartedServer(judge)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	its := pemOf(server.Certificate().Raw)
	cert, _ := testkit.Certificate(t, t.TempDir())
	other := testkit.Read(t, cert)
	for _, tc := range []struct {
		name, ca string
		trusted  bool
	}{
		{"its own", its, true},
		{"its own after another", other + its, true},
		{"another", other, false},
		{"the system's", "", false},
	} {
		c, err := NewV5(Config{Endpoint: server.URL, UserAgent: "test/1", CA: tc.ca})
		testkit.Must(t, err)
		c.cfg.Transport.(*http.Transport).Proxy = nil
		judge.ClientStarted()
		err = searchError(t.Context(), c)
		if (err == nil) != tc.trusted || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", tc.name, err)
		}
		checkSecrets(t, err)
		c.Close()
	}
	roots, err := ParseCA(its)
	only := x509.NewCertPool()
	only.AddCert(server.Certificate())
	if err != nil || !roots.Equal(only) {
		t.Errorf("authorities besides the given ones, or %v", err)
	}
	if _, err := NewV5(Config{UserAgent: "test/1", CA: "none"}); err == nil {
		t.Error("a text without a certificate is accepted")
	}
}

// The environment is read once in a process, so that another one is needed: this
// test binary, which runs only the second test below.
func TestHTTPSProxyIsHonoured(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.Host:
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	child := exec.Command(os.Args[0], "-test.run", "^TestFetchInAnotherProcess$")
	child.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=", childVariable+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	select {
	case got := <-asked:
		if want := "CONNECT safebrowsing.example:443"; got != want {
			t.Errorf("the proxy was asked %q, want %q", got, want)
		}
	default:
		t.Error("the proxy was not asked")
	}
}

const childVariable = "SAFEBROWSING_TEST_CHILD"

func TestFetchInAnotherProcess(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		return // it is half of the test above
	}
	c, err := NewV5(Config{Endpoint: "https://safebrowsing.example", UserAgent: "test/1"})
	testkit.Must(t, err)
	if _, err := fetch(t, c, updater.Want{List: "se-4b"}); err == nil {
		t.Error("fetched through a proxy that refuses")
	}
}
