package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// relayConfigOf returns what the relay of a command line would run with.
func relayConfigOf(t *testing.T, args ...string) (cfg relay.Config) {
	t.Helper()
	c := command()
	c.Action = func(_ context.Context, c *cli.Command) (err error) {
		cfg, err = relayConfig(c)
		return err
	}
	testkit.Must(t, c.Run(t.Context(), append([]string{"safebrowsing-relay"}, args...)))
	return cfg
}

// newRelay starts a relay that asks at once, and returns a client of it. Both end with the test.
func newRelay(t *testing.T, cfg relay.Config) protocol.Client {
	t.Helper()
	cfg.Edge.FirstContact = func() time.Duration { return 0 }
	r, err := relay.New(cfg)
	testkit.Must(t, err)
	t.Cleanup(r.Close)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client, err := protocol.NewV5(protocol.Config{Endpoint: server.URL, UserAgent: "test/1"})
	testkit.Must(t, err)
	t.Cleanup(client.Close)
	testkit.Until(t, "the lists of the relay", r.Ready)
	return client
}

func ask(t *testing.T, client protocol.Client, expression string) (lookup.Answer, error) {
	t.Helper()
	return client.Search(t.Context(), []lookup.Prefix{lookup.HashExpression(expression).Prefix(4)})
}

// Each flag that says what is fetched from which server, and how, does that.
func TestOptionsOfARelay(t *testing.T) {
	testkit.Long(t)
	set := func(flags ...string) func(*testing.T, *world) []string {
		return func(*testing.T, *world) []string { return flags }
	}
	for name, test := range map[string]struct {
		set  func(t *testing.T, w *world) (flags []string)
		want func(t *testing.T, w *world, client protocol.Client)
	}{
		"api-key-file": {func(t *testing.T, w *world) []string {
			w.SetKey("SECRET")
			return []string{"-api-key-file", testkit.Write(t, t.TempDir(), "file", "SECRET")}
		}, wantThreat},
		"token-file": {func(t *testing.T, w *world) []string {
			w.SetToken("ya29.TOKEN")
			return []string{"-token-file", testkit.Write(t, t.TempDir(), "file", "ya29.TOKEN"), "-protocol", "webrisk", "-budget", "unlimited"}
		}, wantThreat},
		"lists": {set("-lists", "se-4b"), func(t *testing.T, _ *world, client protocol.Client) {
			lists, err := client.Lists(t.Context())
			testkit.Must(t, err)
			testkit.Equal(t, "lists", len(lists), 1)
		}},
		"max-entries": {set("-max-entries", "2048"), func(t *testing.T, w *world, _ protocol.Client) {
			testkit.Equal(t, "asked for at most", w.Requests("update")[0].MaxDatabase, 2048)
		}},
		"resolver": {func(t *testing.T, w *world) []string {
			u, err := url.Parse(w.endpoint)
			testkit.Must(t, err)
			w.endpoint = "http://sb.internal:" + u.Port()
			return []string{"-resolver", nameServer(t)}
		}, wantThreat},
		"endpoint-cert and -ca": {func(t *testing.T, w *world) []string {
			server := httptest.NewUnstartedServer(w.Server)
			server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
			server.StartTLS()
			t.Cleanup(server.Close)
			w.endpoint = server.URL
			cert, key := testkit.Certificate(t, t.TempDir())
			ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
			return []string{"-endpoint-cert", cert + "," + key, "-endpoint-ca", testkit.Write(t, t.TempDir(), "file", ca)}
		}, wantThreat},
		"realtime": {func(t *testing.T, w *world) []string {
			w.Publish(protocol.GlobalCache, nil)
			w.AddThreat("new.example/", 2)
			return []string{"-realtime"}
		}, func(t *testing.T, _ *world, client protocol.Client) { wantThreatOf(t, client, "new.example/") }},
		"cache": {set("-cache", "1"), func(t *testing.T, w *world, client protocol.Client) {
			for _, e := range []string{"evil.example/", "mal.example/", "evil.example/"} {
				_, err := ask(t, client, e)
				testkit.Must(t, err)
				w.ClientLostState() // the server demands that an answer is cached, where there is room
			}
			testkit.Equal(t, "searches, as one answer fits into the cache", len(w.Requests("search")), 3)
		}},
		"budget": {set("-budget", "1,50%"), func(t *testing.T, _ *world, client protocol.Client) {
			wantThreat(t, nil, client)
			_, err := ask(t, client, "mal.example/")
			testkit.Is(t, "the budget is spent", err, lookup.ErrBudget)
		}},
		"db off": {set("-db", "off"), func(t *testing.T, w *world, client protocol.Client) {
			wantThreat(t, w, client)
			for _, folder := range []string{"off", w.dir} {
				_, err := os.Stat(folder)
				testkit.Is(t, folder, err, os.ErrNotExist)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			flags := test.set(t, w) // it may replace the server
			test.want(t, w, newRelay(t, relayConfigOf(t, append([]string{"-endpoint", w.endpoint, "-db", w.dir}, flags...)...)))
		})
	}
}

// What a Corefile can say about the engine, flags can: a relay reads no Corefile.
func TestEachPropertyOfTheEngineIsAFlag(t *testing.T) {
	known := command()
	for _, word := range append(engine.Words(), "api_key_file", "token_file", "endpoint") {
		flag := strings.ReplaceAll(word, "_", "-")
		flag = cmp.Or(map[string]string{"mode": "realtime", "tls": "endpoint-ca"}[flag], flag)
		found := slices.ContainsFunc(known.Flags, func(f cli.Flag) bool { return f.Names()[0] == flag })
		testkit.Equal(t, "there is a flag for "+word, found, true)
	}
}

func TestABudgetMeansTheSameInAFlagAndInACorefile(t *testing.T) {
	for property, want := range map[string][2]int{"budget 20": {20, 10}, "budget 20 100%": {20, 100}, "budget unlimited": {0, 0}} {
		w := newWorld(t)
		parsed, err := config.Parse(caddy.NewTestController("dns", "safebrowsing {\nendpoint "+w.endpoint+"\ndb "+w.dir+"\n"+property+"\n}\n"), "")
		testkit.Must(t, err)
		file := engine.Settings(parsed.Engine)
		flags := relayConfigOf(t, "-endpoint", w.endpoint, "-db", w.dir, "-budget", strings.ReplaceAll(strings.TrimPrefix(property, "budget "), " ", ",")).Settings
		testkit.Equal(t, property, [2]int{file.Budget, file.Share}, want)
		testkit.Equal(t, property+" by flags", flags, file)
	}
}

func wantThreat(t *testing.T, _ *world, client protocol.Client) {
	t.Helper()
	wantThreatOf(t, client, "evil.example/")
}

func wantThreatOf(t *testing.T, client protocol.Client, expression string) {
	t.Helper()
	answer, err := ask(t, client, expression)
	testkit.Must(t, err)
	testkit.Equal(t, "threats", len(answer.Threats), 1)
}

// nameServer starts a name server that knows 127.0.0.1 by every name.
func nameServer(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if r.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{test.A(r.Question[0].Name + " 60 IN A 127.0.0.1")}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

func invoke(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var w, e bytes.Buffer
	status = run(t.Context(), append([]string{"safebrowsing-relay"}, args...), strings.NewReader(""), &w, &e)
	return status, w.String(), e.String()
}

type world struct {
	*protocoltest.Server
	endpoint string
	dir      string
}

// newWorld starts a server of lists, without a key in the environment.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", filepath.Join(t.TempDir(), "none"))
	server, endpoint := protocoltest.Small(t)
	return &world{Server: server, endpoint: endpoint, dir: filepath.Join(t.TempDir(), "db")}
}

// filled is a world whose folder holds the server's lists: a relay has fetched them.
func filled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	t.Run("fetch", func(t *testing.T) { newRelay(t, relayConfigOf(t, "-db", w.dir, "-endpoint", w.endpoint)) })
	w.ClientStarted()
	return w
}
