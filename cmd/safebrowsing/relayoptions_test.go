package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/certtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// relayConfigOf returns what the relay of a command line would run with.
func relayConfigOf(t *testing.T, args ...string) (cfg relay.Config) {
	t.Helper()
	c := relayCommand()
	c.Action = func(_ context.Context, c *cli.Command) (err error) {
		cfg, err = relayConfig(c)
		return err
	}
	if err := c.Run(t.Context(), append([]string{"relay"}, args...)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// newRelay starts a relay that asks at once, and returns a client of it. Both end with the test.
func newRelay(t *testing.T, cfg relay.Config) protocol.Client {
	t.Helper()
	cfg.Edge.FirstContact = func() time.Duration { return 0 }
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	client, err := protocol.NewV5(protocol.Config{Endpoint: server.URL, UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for range 4000 {
		if r.Ready() {
			return client
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the relay has no lists")
	return nil
}

// ask searches for an expression by way of a relay.
func ask(t *testing.T, client protocol.Client, expression string) (lookup.Answer, error) {
	t.Helper()
	return client.Search(t.Context(), []lookup.Prefix{lookup.HashExpression(expression).Prefix(4)})
}

// Each property of a Corefile that says what is fetched from which server, and how, works in
// a relay; a flag that has its name does, too.
func TestOptionsOfARelay(t *testing.T) {
	for name, test := range map[string]struct {
		set   func(t *testing.T, w *world) (properties string)
		flags bool // the same as flags
		want  func(t *testing.T, w *world, client protocol.Client)
	}{
		"api_key_file": {func(t *testing.T, w *world) string {
			w.SetKey("SECRET")
			return "api_key_file " + keyFile(t, "SECRET")
		}, true, wantThreat},
		"token_file": {func(t *testing.T, w *world) string {
			w.SetToken("ya29.TOKEN")
			return "token_file " + keyFile(t, "ya29.TOKEN") + "\nprotocol webrisk\nbudget unlimited"
		}, true, wantThreat},
		"protocol v4": {func(*testing.T, *world) string { return "protocol v4" }, true, wantThreat},
		"lists": {func(*testing.T, *world) string { return "lists se-4b" }, true, func(t *testing.T, _ *world, client protocol.Client) {
			if lists, err := client.Lists(t.Context()); err != nil || len(lists) != 1 {
				t.Errorf("lists %v, %v", lists, err)
			}
		}},
		"max_entries": {func(*testing.T, *world) string { return "max_entries 2048" }, true, func(t *testing.T, w *world, _ protocol.Client) {
			if got := w.Requests("update")[0].MaxDatabase; got != 2048 {
				t.Errorf("asked for at most %d entries", got)
			}
		}},
		"resolver": {func(t *testing.T, w *world) string {
			u, err := url.Parse(w.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			w.endpoint = "http://sb.internal:" + u.Port()
			return "resolver " + nameServer(t)
		}, true, wantThreat},
		"endpoint_ca": {func(t *testing.T, w *world) string {
			server := httptest.NewTLSServer(w.Server)
			t.Cleanup(server.Close)
			w.endpoint = server.URL
			return "endpoint_ca " + keyFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
		}, true, wantThreat},
		"endpoint_cert": {func(t *testing.T, w *world) string {
			server := httptest.NewUnstartedServer(w.Server)
			server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
			server.StartTLS()
			t.Cleanup(server.Close)
			w.endpoint = server.URL
			cert, key := certtest.Pair(t, t.TempDir())
			ca := keyFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
			return "endpoint_ca " + ca + "\nendpoint_cert " + cert + " " + key
		}, true, wantThreat},
		"mode realtime": {func(t *testing.T, w *world) string {
			w.Publish(protocol.GlobalCache, nil)
			w.AddThreat("new.example/", 2)
			return "mode realtime"
		}, false, func(t *testing.T, _ *world, client protocol.Client) {
			if answer, err := ask(t, client, "new.example/"); err != nil || len(answer.Threats) != 1 {
				t.Errorf("a threat in no list: %+v, %v", answer, err)
			}
		}},
		"cache": {func(*testing.T, *world) string { return "cache 1" }, false, func(t *testing.T, w *world, client protocol.Client) {
			for _, e := range []string{"evil.example/", "mal.example/", "evil.example/"} {
				if _, err := ask(t, client, e); err != nil {
					t.Error(err)
				}
				w.ClientLostState() // the server demands that an answer is cached, where there is room
			}
			if n := len(w.Requests("search")); n != 3 {
				t.Errorf("%d searches, want 3: one answer fits into the cache", n)
			}
		}},
		"budget": {func(*testing.T, *world) string { return "budget 1 50%" }, true, func(t *testing.T, _ *world, client protocol.Client) {
			wantThreat(t, nil, client)
			_, err := ask(t, client, "mal.example/")
			if !errors.Is(err, lookup.ErrBudget) {
				t.Errorf("got %v, want a refusal since the budget is spent", err)
			}
		}},
		"prefixes": {func(_ *testing.T, w *world) string {
			hash := lookup.HashExpression("evil.example/")
			w.Publish("se-4b", [][]byte{hash[:8]})
			return "protocol webrisk\nbudget unlimited\nprefixes stored"
		}, false, func(t *testing.T, w *world, client protocol.Client) {
			wantThreat(t, w, client)
			if got := w.Requests("search")[0].Prefixes[0]; len(got) != 8 {
				t.Errorf("asked about %x, want the entry as the list holds it", got)
			}
		}},
		"db off": {func(_ *testing.T, w *world) string { w.dir = "off"; return "" }, false, wantThreat},
	} {
		for _, way := range []string{"Corefile", "flags"} {
			if way == "flags" && !test.flags {
				continue
			}
			t.Run(name+" in "+way, func(t *testing.T) {
				w := newWorld(t)
				properties := test.set(t, w)
				args := []string{"-corefile", w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n"+properties+"\n }\n}\n")}
				if way == "flags" {
					args = []string{"-endpoint", w.endpoint, "-db", w.dir}
					for line := range strings.Lines(properties) {
						word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
						args = append(args, "-"+strings.ReplaceAll(word, "_", "-"), strings.ReplaceAll(value, " ", ","))
					}
				}
				test.want(t, w, newRelay(t, relayConfigOf(t, args...)))
			})
		}
	}
}

// A budget has the same share for one client in both.
func TestABudgetMeansTheSameInAFlagAndInACorefile(t *testing.T) {
	for property, want := range map[string][2]int{"budget 20": {20, 10}, "budget 20 100%": {20, 100}, "budget unlimited": {0, 0}} {
		w := newWorld(t)
		file := relayConfigOf(t, "-corefile", w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n"+property+"\n }\n}\n")).Settings
		flags := relayConfigOf(t, "-endpoint", w.endpoint, "-db", w.dir, "-budget", strings.ReplaceAll(strings.TrimPrefix(property, "budget "), " ", ",")).Settings
		if got := [2]int{file.Budget, file.Share}; got != want || flags != file {
			t.Errorf("%s: %+v in a Corefile, %+v by flags, want %v", property, file, flags, want)
		}
	}
}

func wantThreat(t *testing.T, _ *world, client protocol.Client) {
	t.Helper()
	if answer, err := ask(t, client, "evil.example/"); err != nil || len(answer.Threats) != 1 {
		t.Errorf("got %+v, %v", answer, err)
	}
}

func keyFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, content)
	return file
}

// nameServer starts a name server that knows 127.0.0.1 by every name.
func nameServer(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if r.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: netip.MustParseAddr("127.0.0.1").AsSlice()}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

// A property is used by the relay, or the log says once that it is not.
func TestPropertiesThatARelayDoesNotUse(t *testing.T) {
	values := map[string]string{
		"block": "own.txt", "allow": "www.example", "except": "corp.example", "respond": "nodata", "ttl": "1m", "confirm_timeout": "1s", "unsure": "pass",
		"frames": "pass", "limit": "off", "inspect": "cname", "log": "", "monitor": "", "test": "blocked.example", "explain": "", "status": "127.0.0.1:0", "structured": "65001",
	}
	var used []string
	for word := range config.Usages() {
		if _, ok := values[word]; !ok {
			used = append(used, word)
		}
	}
	slices.Sort(used)
	if want := append(config.EngineWords(), "api_key", "api_key_file", "token_file", "endpoint"); !sameWords(used, want) {
		t.Errorf("properties that a relay uses: %q, want %q", used, want)
	}
	t.Chdir(t.TempDir())
	write(t, "own.txt", "own.example\n")
	for word, value := range values {
		lines := logtest.Capture(t)
		w := newWorld(t)
		corefile := w.corefile(t, fmt.Sprintf(". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  %s %s\n }\n}\nexample.org {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n", word, value))
		relayConfigOf(t, "-corefile", corefile)
		line := lines.Only(t, "the relay does not use "+word+":")
		logtest.WantParts(t, line, "[WARNING]", corefile, "Set this in the Corefiles of the CoreDNS servers")
		if has := strings.Contains(line, "-rate and -burst"); has != (word == "limit") {
			t.Errorf("%s: %s", word, line)
		}
	}
	lines := logtest.Capture(t)
	w := newWorld(t)
	relayConfigOf(t, "-corefile", w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  cache 7\n }\n}\n"))
	if got := lines.About("does not use"); len(got) > 0 {
		t.Errorf("got %q about a Corefile of which all is used", got)
	}
}

func sameWords(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// A relay keeps lists: a Corefile that keeps none is refused, and none of its folders is used
// by mistake.
func TestCorefilesThatAreNotForARelay(t *testing.T) {
	for properties, want := range map[string]string{
		"endpoint ENDPOINT\nmode nostorage": "has mode nostorage, which keeps no lists",
		"test blocked.example":              "only your own lists are in force, and nothing is fetched",
		"endpoint ENDPOINT\nlists se-4b\n}\n}\na {\nsafebrowsing {\nendpoint ENDPOINT\nlists mw-4b": "has several settings for Safe Browsing",
	} {
		w := newWorld(t)
		status, _, errOut := invoke(t, "relay", "-admin", "off", "-corefile", w.corefile(t, ". {\n safebrowsing {\n"+properties+"\n }\n}\n"))
		if status != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d, %q, want %q", properties, status, errOut, want)
		}
	}
	w := newWorld(t)
	t.Chdir(t.TempDir())
	cfg := relayConfigOf(t, "-db", "off", "-corefile", w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n"))
	if cfg.Settings.DB != "" {
		t.Errorf("-db off is the folder %s", cfg.Settings.DB)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
