package protocol

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// serving is always as a handler.
func serving(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Write(body)
	}
}

func TestOneNameServerThatWorksIsEnough(t *testing.T) {
	for name, broken := range map[string]string{"nobody listens": "127.0.0.1:1", "SERVFAIL": nameServer(t, 2), "REFUSED": nameServer(t, 5)} {
		for _, servers := range [][]string{{broken, nameServer(t, 0)}, {broken, nameServer(t, 0), broken}} {
			r := Resolver(servers)
			for i := range 20 {
				if got, err := r.LookupHost(t.Context(), "sb.example"); err != nil || !slices.Equal(got, []string{"127.0.0.1"}) {
					t.Fatalf("%s, look-up %d by %v: %v, %v", name, i, servers, got, err)
				}
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
		trusted  bool
	}{
		{"its own", its, true},
		{"its own after another", other + its, true},
		{"another", other, false},
		{"the system's", "", false},
	} {
		judge.ClientStarted()
		err := searchOnce(t.Context(), clientOf(t, Config{Endpoint: server.URL, CA: tc.ca}))
		if (err == nil) != tc.trusted || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", tc.name, err)
		}
		checkSecrets(t, err)
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

// The environment is read once in a process, so that another one is needed: this test binary.
func TestHTTPSProxyIsHonoured(t *testing.T) {
	const child = "SAFEBROWSING_TEST_CHILD"
	if os.Getenv(child) != "" {
		if fetchOnce(t.Context(), speaking(t, DialectV5, Config{Endpoint: "https://safebrowsing.example"})) == nil {
			t.Error("fetched through a proxy that refuses")
		}
		return
	}
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Method + " " + r.Host:
		default:
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=", child+"=1")
	if out, err := other.CombinedOutput(); err != nil {
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

// secretPrefix is what searches ask for; its base64 must be in no error.
const secretPrefix = lookup.Prefix("\xfb\xef\xfe\x00")

// checkSecrets fails if an error tells the key, the URL of a request, or what was
// asked for.
func checkSecrets(t *testing.T, err error) {
	t.Helper()
	for _, form := range []string{"%v", "%+v", "%q"} {
		text := fmt.Sprintf(form, err)
		for _, secret := range []string{testKey, url.QueryEscape(testKey), "://", "/v5/", "/v1/", "hashPrefix", "versionToken", "alt=proto", "--_-AA"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in the error %s", secret, text)
			}
		}
	}
}

// fetchError fetches all lists and returns what is wrong with the answer or with
// the first list that cannot be applied.
func fetchError(ctx context.Context, c Client) error {
	var wanted []updater.Want
	for _, width := range widths {
		wanted = append(wanted, updater.Want{List: fmt.Sprintf("x-%db", width)})
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
		{"lists", "update", protocoltest.ListFaults(), DialectV5, fetchError},
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
				if err == nil {
					t.Error("no error")
				}
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

// A server that knows the key, as it must, may repeat it in whatever words an
// error quotes.
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
			errs := []error{fetchError(t.Context(), c), searchOnce(t.Context(), c), toFetch(updater.Want{List: "x-4b"})(t.Context(), c), toList(t.Context(), c)}
			for _, c := range riskClients(t, Config{Key: testKey, Transport: c.cfg.Transport}) {
				errs = append(errs, fetchOnce(t.Context(), c), searchOnce(t.Context(), c))
			}
			for _, err := range errs {
				if text := fmt.Sprint(err); strings.Contains(strings.ToLower(text), strings.ToLower(testKey)) || strings.Contains(text, testKey[:8]) {
					t.Errorf("the key is in the error %s", text)
				}
			}
		})
	}
}

// An error must still be known for what it is when its words have been changed.
func TestAnErrorWithoutTheKeyIsStillTheSame(t *testing.T) {
	header := http.Header{"Content-Type": {"x-" + testKey + "/plain"}}
	c := newClient(t, answering(func(r *http.Request) (*http.Response, error) { return response(r, 200, header, nil), nil }))
	if err := searchOnce(t.Context(), c); !errors.Is(err, updater.ErrMalformed) {
		t.Errorf("got %v", err)
	}
	c.keys.Store(new(keys))
	if err := searchOnce(t.Context(), c); !strings.Contains(fmt.Sprint(err), testKey) {
		t.Errorf("got %v, want the type of the answer in it: there is no key to hide", err)
	}
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
				if err == nil {
					t.Error("no error")
				}
				checkSecrets(t, err)
			}
		})
	}
}
