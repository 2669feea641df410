package protocol

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestOneNameServerThatWorksIsEnough(t *testing.T) {
	for name, broken := range map[string]string{"nobody listens": "127.0.0.1:1", "SERVFAIL": nameServer(t, 2), "REFUSED": nameServer(t, 5)} {
		for _, servers := range [][]string{{broken, nameServer(t, 0)}, {broken, nameServer(t, 0), broken}} {
			r := Resolver(servers)
			for i := range 20 {
				got, err := r.LookupHost(t.Context(), "sb.example")
				testkit.Is(t, name, err, nil)
				testkit.Equal(t, fmt.Sprintf("%s, look-up %d by %v", name, i, servers), got, []string{"127.0.0.1"})
			}
		}
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
		want     string // in the error; "": none
	}{
		{"its own", its, ""},
		{"its own after another", other + its, ""},
		{"another", other, "certificate"},
		{"the system's", "", "certificate"},
	} {
		judge.ClientStarted()
		err := searchOnce(t.Context(), clientOf(t, Config{Endpoint: server.URL, CA: tc.ca}))
		testkit.Equal(t, tc.name, err == nil, tc.want == "")
		testkit.WantParts(t, fmt.Sprint(err), tc.want)
		checkSecrets(t, err)
	}
	roots, err := parseCA(its)
	only := x509.NewCertPool()
	only.AddCert(server.Certificate())
	testkit.Must(t, err)
	testkit.Equal(t, "the given authorities are all", roots.Equal(only), true)
	_, err = NewV5(Config{UserAgent: "test/1", CA: "none"})
	testkit.WantError(t, err) // a text without a certificate
}

// The environment is read once in a process, so that another one is needed: this test binary.
func TestHTTPSProxyIsHonoured(t *testing.T) {
	const child = "SAFEBROWSING_TEST_CHILD"
	if os.Getenv(child) != "" {
		testkit.WantError(t, fetchOnce(t.Context(), speaking(t, DialectV5, Config{Endpoint: "https://safebrowsing.example"}))) // it refuses
		return
	}
	var asked atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=", child+"=1")
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testkit.Equal(t, "what the proxy was asked", asked.Load(), any("CONNECT safebrowsing.example:443"))
}

// secretPrefix is what searches ask for; its base64 must be in no error.
const secretPrefix = lookup.Prefix("\xfb\xef\xfe\x00")

// checkSecrets fails if an error tells the key, the URL of a request, or what was asked for.
func checkSecrets(t *testing.T, err error) {
	t.Helper()
	text := fmt.Sprintf("%v %+v %q", err, err, err)
	testkit.WantNone(t, text, testKey, url.QueryEscape(testKey), "://", "/v5/", "/v1/", "hashPrefix", "versionToken", "alt=proto", "--_-AA")
}

// fetchAll fetches a list of each width.
func fetchAll(ctx context.Context, c Client) error {
	return fetchError(ctx, c, "x-4b", "x-8b", "x-16b", "x-32b")
}

// fetchError fetches lists and returns what is wrong with the answer or with the first list that cannot be applied.
func fetchError(ctx context.Context, c Client, lists ...string) error {
	var wanted []updater.Want
	for _, name := range lists {
		wanted = append(wanted, updater.Want{List: name})
	}
	broken := make([]error, len(wanted))
	_, err := c.Fetch(ctx, wanted, func(i int, u *updater.Update) {
		_, _, broken[i] = updater.Apply(updater.List{Name: wanted[i].List}, u, 1000)
	})
	return cmp.Or(err, cmp.Or(broken...))
}

var searchOnce = toSearch(secretPrefix)

// toSearch, toFetch and toList ask a client, and return what is wrong with the request or the whole answer.
func toSearch(prefixes ...lookup.Prefix) func(context.Context, Client) error {
	return func(ctx context.Context, c Client) error { _, err := c.Search(ctx, prefixes); return err }
}

func toFetch(wanted ...updater.Want) func(context.Context, Client) error {
	return func(ctx context.Context, c Client) error {
		_, err := c.Fetch(ctx, wanted, func(int, *updater.Update) {})
		return err
	}
}

func toList(ctx context.Context, c Client) error { _, err := c.Lists(ctx); return err }

func TestEveryFaultIsAnErrorWithoutSecretsOverASocket(t *testing.T) {
	searchRisk := func(ctx context.Context, c Client) error {
		return cmp.Or(fetchOnce(ctx, c), searchOnce(ctx, c)) // only entries of lists may be asked for
	}
	for _, service := range []struct {
		name, method string
		faults       map[string]protocoltest.Fault
		dialect      *Dialect
		ask          func(context.Context, Client) error
	}{
		{"lists", "update", protocoltest.ListFaults(), DialectV5, fetchAll},
		{"search", "search", protocoltest.SearchFaults(), DialectV5, searchOnce},
		{"lists of Web Risk", "computeDiff", protocoltest.ListFaultsWebRisk(), DialectWebRisk, fetchOnce},
		{"search of Web Risk", "searchOne", protocoltest.SearchFaultsWebRisk(), DialectWebRisk, searchRisk},
	} {
		for name, f := range service.faults {
			t.Run(service.name+", "+name, func(t *testing.T) {
				s := riskServer(t)
				for _, width := range widths {
					s.Publish(fmt.Sprintf("x-%db", width), [][]byte{make([]byte, width), append(make([]byte, width-1), 1)})
				}
				s.Break(service.method, 1, f)
				socket := httptest.NewServer(s)
				defer socket.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if f.Delay > 0 {
					ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
					defer cancel()
				}
				err := service.ask(ctx, speaking(t, service.dialect, Config{Endpoint: socket.URL, Key: testKey}))
				testkit.WantError(t, err)
				checkSecrets(t, err)
			})
		}
	}
}

// clientOf returns a client of version 5.
func clientOf(t testing.TB, cfg Config) *V5 {
	t.Helper()
	cfg.UserAgent = "test/1"
	c, err := NewV5(cfg)
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// A server that knows the key, as it must, may repeat it in whatever words an error quotes.
func TestAServerThatRepeatsTheKeyDoesNotGetItIntoErrors(t *testing.T) {
	named := marshal(t, &sbv5.BatchGetHashListsResponse{HashLists: []*sbv5.HashList{{Name: testKey}, {Name: "x-8b"}, {Name: "x-16b"}, {Name: "x-32b"}}})
	one := marshal(t, &sbv5.HashList{Name: testKey})
	saying := func(message string) answering {
		return func(r *http.Request) (*http.Response, error) {
			return response(r, 403, nil, []byte(`{"error":{"message":"`+message+`"}}`)), nil
		}
	}
	with := func(status int, header, value string) answering {
		return func(r *http.Request) (*http.Response, error) {
			return response(r, status, http.Header{header: {value}}, nil), nil
		}
	}
	for name, answer := range map[string]answering{
		"in the error message":           saying("the key " + testKey + " is not valid"),
		"in the error message, escaped":  saying(`the key \u0041` + testKey[1:] + " is not valid"),
		"across the end of the message":  saying(strings.Repeat("x", 290) + testKey),
		"as the type of the answer":      with(200, "Content-Type", "x-"+testKey+"/plain"),
		"as an enum in JSON":             always(jsonForm, []byte(`{"fullHashes":[{"fullHashDetails":[{"threatType":"`+testKey+`"}]}],"hashLists":"`+testKey+`","name":[]}`)),
		"as an enum in JSON of Web Risk": always(jsonForm, []byte(`{"responseType":"`+testKey+`","threats":"`+testKey+`"}`)),
		"as a time of Web Risk":          always(jsonForm, []byte(`{"recommendedNextDiff":"`+testKey+`","negativeExpireTime":"`+testKey+`"}`)),
		"as a compression":               with(200, "Content-Encoding", testKey),
		"as the name of a list": func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Path, "/v5/hashList/") {
				return always(binaryForm, one)(r)
			}
			return always(binaryForm, named)(r)
		},
		"in a redirect that is no URL": with(302, "Location", "https://[::1/?key="+testKey),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, answer)
			errs := []error{fetchAll(t.Context(), c), searchOnce(t.Context(), c), toFetch(updater.Want{List: "x-4b"})(t.Context(), c), toList(t.Context(), c)}
			for _, c := range riskClients(t, Config{Key: testKey, Transport: c.cfg.Transport}) {
				errs = append(errs, fetchOnce(t.Context(), c), searchOnce(t.Context(), c))
			}
			for _, err := range errs {
				testkit.WantNone(t, strings.ToLower(fmt.Sprint(err)), strings.ToLower(testKey[:8]))
			}
		})
	}
}

// An error must still be known for what it is when its words have been changed.
func TestAnErrorWithoutTheKeyIsStillTheSame(t *testing.T) {
	c := newClient(t, always("x-"+testKey+"/plain", nil))
	testkit.Is(t, "the search", searchOnce(t.Context(), c), updater.ErrMalformed)
	c.keys.Store(new(keys))
	testkit.WantError(t, searchOnce(t.Context(), c), testKey) // there is no key to hide
}

// What is not HTTP is quoted by the transport.
func TestAServerThatRepeatsTheKeyInNoHTTP(t *testing.T) {
	for name, answer := range map[string]string{
		"as the first line": "%s nonsense\r\n\r\n",
		"as a header line":  "HTTP/1.1 200 OK\r\n%s\r\n\r\n",
		"as a length":       "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := "http://" + tcpServer(t, func(conn net.Conn) {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					fmt.Fprintf(conn, answer, testKey)
				}
			})
			for _, c := range append(riskClients(t, Config{Key: testKey, Endpoint: endpoint}), clientOf(t, Config{Key: testKey, Endpoint: endpoint})) {
				err := searchOnce(t.Context(), c)
				testkit.WantError(t, err)
				checkSecrets(t, err)
			}
		})
	}
}

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
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
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
			if err := c.Reach(ctx); ok && !test.reached {
				testkit.Equal(t, err, isNotSent(err), true)
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
		testkit.WantError(t, err, want)
		testkit.Between(t, endpoint+": bytes of the error", len(err.Error()), 0, maxErrorText)
	}
}

func TestAMadeConnectionIsReachable(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	for _, host := range []string{"127.0.0.1", "bücher.example"} {
		endpoint := strings.Replace(server.URL, "127.0.0.1", host, 1)
		testkit.Is(t, host, clientOf(t, Config{Endpoint: endpoint, Resolvers: []string{nameServer(t, 0)}}).Reach(t.Context()), nil)
		testkit.Equal(t, host+": requests", asked.Load(), 0)
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
	unsent, ok := errors.AsType[*updater.NotSentError](err)
	testkit.Equal(t, "a proxy is reached", ok && unsent.Reached, true)
	testkit.WantError(t, err, "no connection to sb.example: the proxy "+through.Host+" answers with status 502")
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
				testkit.Equal(t, err, []bool{isNotSent(err), statusOf(err) == 0}, []bool{test.unsent, test.unsent})
				if test.unsent { // an endpoint that was not reached has no back-off
					testkit.WantError(t, ask(t.Context(), f), "http://a: ", "http://b: ")
				}
			})
		}
	}
}
