// Package test holds the end-to-end tests: a CoreDNS with the plugin, on real sockets, between a client, a name server
// and a Safe Browsing server, which world_test.go makes in this process. Other tests here are about the whole
// repository: its documents, its tasks, and which package imports which.
package test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"

	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/multisocket"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/root"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/view"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/miekg/dns"

	_ "github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// engines holds the engines of this process.
var engines = engine.ForTests{Registry: engine.Default}

// caddyMu is held while instances start and stop: CoreDNS has one at a time, and does not guard their list against more.
var caddyMu sync.Mutex

// world is a Safe Browsing server over HTTP, a name server upstream, and a
// CoreDNS between them and a client, all on real sockets.
type world struct {
	t        testing.TB
	google   *protocoltest.Server
	endpoint string
	db       string
	upstream string
	protocol *protocol.Dialect // for a paid one the Corefile has budget unlimited, unless given
	host     string            // where CoreDNS listens
	instance *caddy.Instance

	certificate *x509.Certificate // of the server, if it has one, see overTLS

	elsewhere string // address of a CoreDNS in another process, which is asked instead of the instance; "": none
}

var worlds atomic.Uint32

// ownHost returns a loopback address that no other world has. Port 0 is not enough: CoreDNS shares its ports, so that
// the system may give one to two servers, which then share the queries.
func ownHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	pid, n := os.Getpid(), worlds.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 1+pid%254, pid/254%254, 1+n%254)
}

func newWorld(t testing.TB) *world { return newWorldJudged(t, t) }

// newWorldJudged is newWorld with another reporter of rules that a client breaks.
func newWorldJudged(t testing.TB, judge protocoltest.Reporter) *world {
	w := &world{t: t, google: protocoltest.New(judge), db: t.TempDir(), host: ownHost(), protocol: protocol.DialectV5}
	server := httptest.NewServer(w.google)
	t.Cleanup(server.Close)
	w.endpoint = server.URL
	w.upstream = startUpstream(t, 0)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		w.google.SetMinimumWait(list, time.Hour)
		w.google.Publish(list, nil)
	}
	return w
}

// upstreamAddress is what the upstream answers for every name.
const upstreamAddress = "192.0.2.7"

// startUpstream starts a name server that knows every name, and answers after a delay.
func startUpstream(t testing.TB, delay time.Duration) string {
	return startUpstreamWith(t, func(q dns.Question) []dns.RR {
		time.Sleep(delay)
		data := map[uint16]string{dns.TypeA: "A " + upstreamAddress, dns.TypeTXT: "TXT passed", dns.TypeMX: "MX 0 mail.example.org."}
		if data[q.Qtype] == "" {
			return nil
		}
		rr, _ := dns.NewRR(". 300 IN " + data[q.Qtype])
		rr.Header().Name = q.Name
		return []dns.RR{rr}
	})
}

// startUpstreamWith starts a name server that answers with records.
func startUpstreamWith(t testing.TB, answer func(dns.Question) []dns.RR) string {
	return startNameServer(t, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		m.Answer = answer(r.Question[0])
		w.WriteMsg(m)
	})
}

// startNameServer starts a name server for UDP and TCP: *forward* asks over TCP who was asked over TCP. Without
// TCP the port could belong to another listener, which never answers.
func startNameServer(t testing.TB, answer dns.HandlerFunc) string {
	address := testkit.FreeAddr(t)
	var started sync.WaitGroup
	for _, network := range []string{"udp", "tcp"} {
		started.Add(1)
		server := &dns.Server{Addr: address, Net: network, NotifyStartedFunc: started.Done, Handler: answer}
		go func() {
			if err := server.ListenAndServe(); err != nil {
				t.Errorf("The name server does not start: %v", err)
				started.Done()
			}
		}()
		t.Cleanup(func() { server.Shutdown() })
	}
	started.Wait()
	return address
}

// publish makes the next version of a list from expressions.
func (w *world) publish(list string, expressions ...string) {
	w.google.Publish(list, prefixesOf(expressions...))
}

func prefixesOf(expressions ...string) (entries [][]byte) {
	for _, e := range expressions {
		hash := sha256.Sum256([]byte(e))
		entries = append(entries, hash[:4])
	}
	return entries
}

// threaten lists expressions as phishing, and searches confirm them.
func (w *world) threaten(expressions ...string) {
	w.publish("se-4b", expressions...)
	for _, e := range expressions {
		w.google.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
}

// corefile is a server block for all names. Properties are lines of the safebrowsing stanza.
func (w *world) corefile(properties ...string) string {
	if !slices.ContainsFunc(properties, func(p string) bool { return strings.HasPrefix(p, "confirm_timeout") }) {
		properties = append(properties, "confirm_timeout 10s") // a busy machine is no late confirmation
	}
	if w.protocol.Paid && !slices.ContainsFunc(properties, func(p string) bool { return strings.HasPrefix(p, "budget") }) {
		properties = append(properties, "budget unlimited")
	}
	return fmt.Sprintf(`.:0 {
	bind %s
	errors
	safebrowsing {
		endpoint %s
		protocol %s
		db %s
		%s
	}
	cache
	forward . %s
}
`, w.host, w.endpoint, w.protocol, w.db, strings.Join(properties, "\n\t\t"), w.upstream)
}

func threatened(t testing.TB, expressions ...string) *world {
	w := newWorld(t)
	w.threaten(expressions...)
	return w
}

// start starts CoreDNS and waits until it has been in touch with the server.
func (w *world) start(corefile string) {
	w.t.Helper()
	w.begin(corefile)
	w.serving()
}

// run starts CoreDNS with properties and waits for its first update.
func (w *world) run(properties ...string) {
	w.t.Helper()
	w.serve(w.corefile(properties...))
}

// serve starts CoreDNS and waits for its first update.
func (w *world) serve(corefile string) {
	w.t.Helper()
	w.start(corefile)
	w.updated(1)
}

// restart starts CoreDNS again, with what is on disk.
func (w *world) restart(corefile string) {
	w.t.Helper()
	w.stop()
	w.google.ClientStarted()
	w.start(corefile)
}

// begin is start for a Corefile with servers that serving cannot ask.
func (w *world) begin(corefile string) {
	w.t.Helper()
	engines.Forget(w.endpoint) // another test may have had the port, and left a wait
	caddyMu.Lock()
	instance, err := caddy.Start(input(corefile))
	caddyMu.Unlock()
	testkit.Must(w.t, err)
	w.instance = instance
	w.t.Cleanup(w.stop)
}

// serving waits until every server answers over UDP and TCP. CoreDNS does not stop a server that has not begun to
// serve: its socket would stay open, and the plugins of an instance that has ended would answer some of the queries.
func (w *world) serving() {
	w.t.Helper()
	m := new(dns.Msg).SetQuestion("started.why.safebrowsing.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS // answered by the server or this plugin, not upstream
	for _, s := range w.plainServers() {
		for network, address := range map[string]string{"udp": s.LocalAddr().String(), "tcp": s.Addr().String()} {
			c := &dns.Client{Net: network, Timeout: time.Second}
			testkit.Until(w.t, "the first answer over "+network, func() bool {
				_, _, err := c.Exchange(m, address)
				return err == nil
			})
		}
	}
}

// plainServers returns the servers of the instance that speak plain DNS. CoreDNS starts servers in no particular order.
func (w *world) plainServers() []caddy.ServerListener {
	return slices.DeleteFunc(slices.Clone(w.instance.Servers()), func(s caddy.ServerListener) bool { return s.LocalAddr() == nil })
}

func input(corefile string) caddy.Input {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
}

func (w *world) stop() {
	if w.instance == nil {
		return
	}
	caddyMu.Lock()
	// Without Instance.Wait: a listener that a reload stops before it has begun to serve never ends.
	err := errors.Join(errors.Join(w.instance.ShutdownCallbacks()...), w.instance.Stop())
	caddyMu.Unlock()
	testkit.Is(w.t, "the stop", err, nil)
	w.instance = nil
	engines.Forget(w.endpoint) // the process ends, and with it what it remembered
}

func (w *world) reload(corefile string) error {
	caddyMu.Lock()
	instance, err := w.instance.Restart(input(corefile))
	caddyMu.Unlock()
	if err == nil {
		w.instance = instance
		w.serving()
	}
	return err
}

// takeOver makes the instance that serves the world's own, after a reload that ended with an error though it had come so far.
func (w *world) takeOver() {
	all := caddy.Instances()
	w.instance = all[len(all)-1]
}

// address is where CoreDNS answers: a "udp" or "tcp" one.
func (w *world) address(network string) string {
	if w.elsewhere != "" {
		return w.elsewhere
	}
	s := w.plainServers()[0]
	if network == "udp" {
		return s.LocalAddr().String()
	}
	return s.Addr().String()
}

// patience is how long a client waits for an answer that must come: more than confirm_timeout.
const patience = 20 * time.Second

func (w *world) ask(name string, qtype uint16) *dns.Msg {
	w.t.Helper()
	return w.askOver("udp", name, qtype)
}

func (w *world) askOver(network, name string, qtype uint16) *dns.Msg {
	w.t.Helper()
	return w.exchange(network, query(name, qtype))
}

// query asks for a name as a client that takes Extended DNS Errors.
func query(name string, qtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, qtype).SetEdns0(1232, false)
}

// clientAt is a client at an address of this machine.
func clientAt(address string) *dns.Client {
	return &dns.Client{Timeout: patience, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(address)}}}
}

// file returns a file of the repository.
func file(t testing.TB, name string) string {
	t.Helper()
	return testkit.Read(t, "../"+name)
}

// wantEngines fails unless this process has n engines, which holders server blocks hold.
func wantEngines(t *testing.T, n, holders int) {
	t.Helper()
	e, h := engines.Count()
	testkit.Equal(t, "engines, holders", [2]int{e, h}, [2]int{n, holders})
}

func (w *world) exchange(network string, m *dns.Msg) *dns.Msg {
	w.t.Helper()
	answer, _, err := (&dns.Client{Net: network, Timeout: patience}).Exchange(m, w.address(network))
	if err != nil {
		w.t.Fatalf("Asking for %s %s: %v", m.Question[0].Name, dns.TypeToString[m.Question[0].Qtype], err)
	}
	return answer
}

// ede returns the text of the Extended DNS Error of m, and whether its code is Blocked.
func ede(m *dns.Msg) (text string, blocked bool) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				return e.ExtraText, e.InfoCode == dns.ExtendedErrorCodeBlocked
			}
		}
	}
	return "", false
}

func isBlocked(m *dns.Msg) bool {
	_, blocked := ede(m)
	return blocked && m.Rcode == dns.RcodeNameError
}

func (w *world) wantBlocked(name string, qtype uint16, text string) {
	w.t.Helper()
	m := w.ask(name, qtype)
	if got, _ := ede(m); !isBlocked(m) || got != text {
		w.t.Errorf("%s %s: Expected to be blocked with %q, got %q and\n%v", name, dns.TypeToString[qtype], text, got, m)
	}
}

func (w *world) wantPassed(name string, qtype uint16) {
	w.t.Helper()
	if m := w.ask(name, qtype); m.Rcode != dns.RcodeSuccess || isBlocked(m) {
		w.t.Errorf("%s %s: Expected to be passed, got\n%v", name, dns.TypeToString[qtype], m)
	}
}

func (w *world) blames(threat string) string {
	return "suspected " + threat + " (" + w.protocol.Service + ")"
}

// updated waits for n requests for lists to have been answered and applied.
func (w *world) updated(n int) {
	w.t.Helper()
	testkit.Until(w.t, fmt.Sprintf("%d updates", n), func() bool { return len(w.fetches()) >= n && w.ready() })
}

// perUpdate returns how many requests an update of n lists takes. Web Risk is asked for each list by itself.
func (w *world) perUpdate(lists int) int {
	if w.protocol == protocol.DialectWebRisk {
		return lists
	}
	return 1
}

// fetches and searches return the requests of a method, in whichever protocol.
func (w *world) fetches() []protocoltest.Request  { return w.google.Requests("update") }
func (w *world) searches() []protocoltest.Request { return w.google.Requests("search") }

// wantOneSearch fails unless the server was asked once, about one prefix.
func (w *world) wantOneSearch(prefix []byte) {
	w.t.Helper()
	if all := w.searches(); len(all) != 1 || len(all[0].Prefixes) != 1 || !bytes.Equal(all[0].Prefixes[0], prefix) {
		w.t.Errorf("Expected one search for %x, got %+v", prefix, all)
	}
}

// engine returns the engine that asks this world's server, or nil.
func (w *world) engine() *engine.Engine { return engines.Find(w.endpoint) }

// ready reports whether there is such an engine, and its lists are in force or its first contact has ended.
func (w *world) ready() bool { e := w.engine(); return e != nil && e.Ready() }

// blockList returns the property of an own list with a name and all below it.
func blockList(t *testing.T, name string) string {
	t.Helper()
	return "block " + writeFile(t, t.TempDir(), "own.txt", name+"\n*."+name+"\n")
}

// byOwn is the text of the Extended DNS Error about a name in the list of blockList.
const byOwn = "blocklist own.txt"

var writeFile, get = testkit.Write, testkit.Body
