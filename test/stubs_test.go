package test

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/pkg/doh"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var allStubs = flag.Bool("stubs.all", false, "let TestWhoAsksWhomBeforeAndAfterKeepClients try Knot Resolver and browsers, too")

// stub is a client, or a resolver in front of one, that is told to ask this server.
type stub struct {
	name string
	uses func(t *testing.T, e *elsewhere, names []string) // looks names up
}

// TestWhoAsksWhomBeforeAndAfterKeepClients lets real stubs look names up, in a network in which public encrypted resolvers
// answer, too. It makes the rows of the table in test/README.md: for which names by which it could leave a stub asks this
// server, and whom it asks then; in the end with the public resolvers in a list of block.
func TestWhoAsksWhomBeforeAndAfterKeepClients(t *testing.T) {
	testkit.Long(t)
	if os.Getenv(ownNetwork) == "" {
		t.Parallel()
	}
	resolved := resolvedInOwnNetwork(t, "-test.timeout=10m", fmt.Sprintf("-stubs.all=%t", *allStubs))
	if resolved == "" {
		return
	}
	for _, address := range []string{"192.0.2.7/32", "192.0.2.9/32", "8.8.8.8/32"} {
		inShell(t, "ip", "address", "add", address, "dev", "lo")
	}
	inShell(t, "ip", "route", "add", "default", "via", "192.0.2.2", "dev", "lan") // without one Firefox is offline
	lines := testkit.Capture(t)
	e := newElsewhere(t, lines)
	rows, table := make(map[string]string), documents(t)["test/README.md"]
	stubs := stubsThatAreHere(resolved)
	publicList, err := filepath.Abs("../internal/block/resolvers.txt")
	testkit.Must(t, err)
	for round, words := range []string{"keep_clients off", "keep_clients", "keep_clients\n\t\tblock " + publicList} {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			w := newWorld(t)
			w.host, w.upstream = "192.0.2.53", e.upstream
			w.serve(strings.NewReplacer(".:0 {", ".:53 {", "bind 192.0.2.53", "bind 192.0.2.53 8.8.8.8", "errors", "errors\n\tlog").Replace(w.corefile(words)))
			for i, s := range stubs {
				t.Run(s.name, func(t *testing.T) {
					var names []string
					for n := range 30 {
						names = append(names, fmt.Sprintf("n%d-%d-%d.example.org.", round, i, n))
					}
					e.forget()
					s.uses(t, e, names)
					row := func() string {
						begun := cmp.Or(rows[s.name], "| "+s.name+" | ")
						if round < 2 {
							begun += e.signs() + " | "
						}
						return begun + e.whom(names) + " | "
					}
					// *log* writes a line after the answer, at times long after it.
					for end := time.Now().Add(10 * time.Second); !strings.Contains(table, "\n"+strings.TrimSpace(row())) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					}
					rows[s.name] = row()
				})
			}
		})
	}
	for _, s := range stubs {
		row := strings.TrimSpace(rows[s.name])
		if t.Log(row); !strings.Contains(table, "\n"+row+"\n") {
			t.Errorf("Expected this row in test/README.md:\n%s", row)
		}
	}
}

// stubsThatAreHere are the rows of the table.
func stubsThatAreHere(resolved string) []stub {
	const here = "192.0.2.53"
	stubs := []stub{
		{"glibc", func(t *testing.T, _ *elsewhere, names []string) {
			useNameServers(t, here)
			for _, name := range names {
				inShell(t, "getent", "ahostsv4", name)
			}
		}},
		{"kdig", func(t *testing.T, _ *elsewhere, names []string) {
			program := testkit.Program(t, "kdig")
			for _, name := range names {
				inShell(t, program, "@"+here, name)
			}
		}},
		{"a client of RFC 9462 that wants a certificate for 192.0.2.53", func(t *testing.T, e *elsewhere, names []string) { e.discovers(t, names, true) }},
		{"one that takes any certificate", func(t *testing.T, e *elsewhere, names []string) { e.discovers(t, names, false) }},
		{"systemd-resolved", func(t *testing.T, _ *elsewhere, names []string) {
			startForwarder(t, resolved)
			askAll(t, "127.0.0.53:53", names)
		}},
	}
	for _, f := range forwarders {
		if f.row == "" && !f.notInDebian {
			stubs = append(stubs, stub{f.heading, func(t *testing.T, _ *elsewhere, names []string) {
				askAll(t, runForwarder(t, f, findForwarder(t, f), documentedConfig(t, f.heading)), names)
			}})
		}
	}
	if !*allStubs {
		return stubs
	}
	stubs = append(stubs, stub{"Knot Resolver", func(t *testing.T, _ *elsewhere, names []string) {
		config := testkit.Write(t, t.TempDir(), "kresd.conf", "net.listen('127.0.0.1', 5353, { kind = 'dns' })\ntrust_anchors.remove('.')\npolicy.add(policy.all(policy.STUB('"+here+"')))\n")
		startForwarder(t, testkit.Program(t, "kresd"), "-n", "-c", config, t.TempDir())
		askAll(t, "127.0.0.1:5353", names)
	}})
	for _, servers := range [][]string{{here}, {here, "8.8.8.8"}, {"8.8.8.8"}} {
		stubs = append(stubs, stub{"Chromium with " + strings.Join(servers, " and "), func(t *testing.T, e *elsewhere, names []string) {
			useNameServers(t, servers...)
			e.chromium(t, names)
		}})
	}
	return append(stubs, stub{"Firefox", func(t *testing.T, e *elsewhere, names []string) {
		useNameServers(t, here)
		e.firefox(t, names)
	}})
}

func inShell(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// useNameServers makes name servers this machine's own, in its own network.
func useNameServers(t *testing.T, servers ...string) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"resolv.conf":   "nameserver " + strings.Join(servers, "\nnameserver ") + "\n",
		"nsswitch.conf": "hosts: files dns\n",
	} {
		inShell(t, "mount", "--bind", testkit.Write(t, dir, name, text), "/etc/"+name)
		t.Cleanup(func() { inShell(t, "umount", "--lazy", "/etc/"+name) })
	}
}

func askAll(t *testing.T, address string, names []string) {
	for _, name := range names {
		askForwarder(t, address, name, dns.TypeA)
	}
}

// elsewhere are the encrypted resolvers of others and the web, at all addresses of this machine. Whose
// resolver it is, the client says as it begins TLS.
type elsewhere struct {
	upstream    string // invites clients to dns.upstream.example, as public resolvers do
	lines       *testkit.Lines
	certificate *x509.Certificate

	mu     sync.Mutex
	tried  map[string]bool   // resolvers to which a client has begun TLS
	asked  map[string]string // by name: the resolver
	page   string            // of the web
	loaded map[string]bool   // hosts of the web
}

func newElsewhere(t *testing.T, lines *testkit.Lines) *elsewhere {
	upstream := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		all := leadAway(q)
		if q.Qtype == dns.TypeA && (strings.HasPrefix(q.Name, "restrict") || strings.HasPrefix(q.Name, "forcesafesearch.")) {
			all[0].(*dns.A).A = net.ParseIP("192.0.2.8") // Firefox stays where it finds SafeSearch in force
		}
		return all
	})
	e := &elsewhere{upstream: upstream, lines: lines}
	e.forget()
	file, key := testkit.CertificateAt(t, t.TempDir(), net.ParseIP("192.0.2.9"), "dns.upstream.example", "dns.google", "firefox.dns.nextdns.io")
	pair, err := tls.LoadX509KeyPair(file, key)
	testkit.Must(t, err)
	e.certificate = pair.Leaf
	trust := &tls.Config{Certificates: []tls.Certificate{pair}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if isResolver(h.ServerName + ".") {
			e.tried[h.ServerName] = true
		}
		return nil, nil
	}}
	over := &dns.Server{Addr: ":853", Net: "tcp-tls", TLSConfig: trust, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		w.WriteMsg(e.answer(r, w.(dns.ConnectionStater).ConnectionState().ServerName))
	})}
	go over.ListenAndServe()
	t.Cleanup(func() { over.Shutdown() })
	secure, web := &http.Server{Addr: ":443", TLSConfig: trust, Handler: http.HandlerFunc(e.overHTTPS)}, &http.Server{Addr: ":80", Handler: http.HandlerFunc(e.serve)}
	go secure.ListenAndServeTLS("", "")
	go web.ListenAndServe()
	t.Cleanup(func() { secure.Close(); web.Close() })
	return e
}

func (e *elsewhere) forget() {
	e.lines.Forget()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tried, e.asked, e.loaded = make(map[string]bool), make(map[string]string), make(map[string]bool)
}

func (e *elsewhere) answer(r *dns.Msg, resolver string) *dns.Msg {
	e.mu.Lock()
	e.asked[r.Question[0].Name] = resolver
	e.mu.Unlock()
	m, err := dns.Exchange(r, e.upstream)
	if err != nil {
		return new(dns.Msg).SetRcode(r, dns.RcodeServerFailure)
	}
	return m
}

func (e *elsewhere) overHTTPS(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != doh.Path {
		e.serve(w, r)
		return
	}
	m, err := doh.RequestToMsg(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	raw, _ := e.answer(m, r.TLS.ServerName).Pack() // it has been unpacked
	w.Header().Set("Content-Type", doh.MimeType)
	w.Write(raw)
}

// serve serves the page, and nothing at other hosts.
func (e *elsewhere) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded[r.Host+"."] = true
	if r.Host == "page.example.org" && r.URL.Path == "/" {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, e.page)
		return
	}
	http.NotFound(w, r)
}

// here returns the names for which this server was asked, which *log* has written.
func (e *elsewhere) here() map[string]bool {
	names := make(map[string]bool)
	for _, m := range regexp.MustCompile(`"[A-Z0-9]+ IN (\S+) `).FindAllStringSubmatch(e.lines.String(), -1) {
		names[strings.ToLower(m[1])] = true
	}
	return names
}

// publicResolvers are the names in the plugin's list.
var publicResolvers = sync.OnceValue(func() (names []string) {
	text, _ := os.ReadFile("../internal/block/resolvers.txt")
	for _, m := range regexp.MustCompile(`(?m)^\|\|(\S+)\^$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1]+".")
	}
	return names
})

// isResolver reports whether a name is one of a resolver that clients may use instead of this server.
func isResolver(name string) bool {
	return name == "dns.upstream.example." || slices.ContainsFunc(publicResolvers(), func(zone string) bool { return dns.IsSubDomain(zone, name) })
}

// signs says which names by which it could leave a stub has asked this server for.
func (e *elsewhere) signs() string {
	var signs []string
	for name := range e.here() {
		if isResolver(name) || slices.ContainsFunc(answer.KeptNames, func(k answer.Kept) bool { return dns.IsSubDomain(k.Name, name) }) {
			signs = append(signs, "`"+strings.TrimSuffix(name, ".")+"`")
		}
	}
	slices.Sort(signs)
	return cmp.Or(strings.Join(signs, ", "), "nothing")
}

// whom says which servers the last third of names was asked of, when a stub has made up its mind.
func (e *elsewhere) whom(names []string) string {
	here := e.here()
	e.mu.Lock()
	defer e.mu.Unlock()
	places := make(map[string]bool)
	for _, name := range names[2*len(names)/3:] {
		if here[name] {
			places["here"] = true
		}
		if resolver := e.asked[name]; resolver != "" {
			places[resolver] = true
		}
	}
	text := strings.Join(slices.Sorted(maps.Keys(places)), " and ")
	if tried := slices.Sorted(maps.Keys(e.tried)); text == "here" && len(tried) > 0 {
		text += "; it has tried " + strings.Join(tried, ", ")
	}
	return text
}

// discovers looks names up as a client that looks for encrypted DNS (RFC 9462 section 4).
func (e *elsewhere) discovers(t *testing.T, names []string, verifies bool) {
	const here = "192.0.2.53"
	w := &world{t: t, elsewhere: here + ":53"}
	trust := &tls.Config{InsecureSkipVerify: true}
	if verifies {
		trust.VerifyConnection = func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(here) }
	}
	for _, rr := range w.designated() {
		p := parametersOf(rr)
		trust.ServerName = strings.TrimSuffix(rr.Target, ".")
		conn, err := dns.DialWithTLS("tcp-tls", net.JoinHostPort(p.hint, p.port), trust)
		if err != nil {
			continue
		}
		defer conn.Close()
		for _, name := range names {
			testkit.Must(t, conn.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)))
			_, err := conn.ReadMsg()
			testkit.Must(t, err)
		}
		return
	}
	askAll(t, here+":53", names)
}

// chromium looks names up with DNS over HTTPS in automatic mode, which is Chrome's default.
func (e *elsewhere) chromium(t *testing.T, names []string) {
	home, key := t.TempDir(), sha256.Sum256(e.certificate.RawSubjectPublicKeyInfo)
	testkit.Write(t, home, "Local State", `{"dns_over_https":{"mode":"automatic"}}`)
	e.browse(t, names, home, "chromium", "--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu", "--user-data-dir="+home, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
}

// firefox looks names up as in a country where Firefox upgrades by itself. It looks for no portal: there is none.
// The provider is one of Firefox's two; at the other one it lets nobody override what it thinks of the certificate.
func (e *elsewhere) firefox(t *testing.T, names []string) {
	home := t.TempDir()
	testkit.Write(t, home, "user.js", `user_pref("doh-rollout.enabled", true);
user_pref("doh-rollout.home-region", "US");
user_pref("doh-rollout.provider-list", '[{"uri":"https://firefox.dns.nextdns.io/dns-query"}]');
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("network.trr.wait-for-portal", false);
`)
	testkit.Write(t, home, "cert_override.txt", "firefox.dns.nextdns.io:443:\tOID.2.16.840.1.101.3.4.2.1\t"+strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(e.certificate.Raw)), " ", ":")+"\t\n")
	e.browse(t, names, home, "firefox-esr", "--headless", "--no-remote", "--profile", home)
}

// browse opens a page that loads hosts one after another.
func (e *elsewhere) browse(t *testing.T, names []string, home, program string, args ...string) {
	hosts, err := json.Marshal(names)
	testkit.Must(t, err)
	e.mu.Lock()
	e.page = `<!doctype html><title>page</title><script>let hosts = ` + string(hosts) + `
setInterval(() => { if (hosts.length > 0) new Image().src = "http://" + hosts.shift().slice(0, -1) + "/" }, 500)</script>`
	e.mu.Unlock()
	t.Setenv("HOME", home)
	startForwarder(t, testkit.Program(t, program), append(args, "http://page.example.org/")...)
	testkit.Until(t, "the last host of the page", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.loaded[names[len(names)-1]]
	})
}
