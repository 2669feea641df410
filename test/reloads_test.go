package test

import (
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var reloads = flag.Int("reloads", 20, "how many times TestReloads reloads")

// TestReloads reloads a CoreDNS by SIGUSR1, under load, again and again: with the same Corefile, with other settings of an
// engine, and with Corefiles that are refused. No query may be lost, nothing leaked, and the servers judge the requests.
func TestReloads(t *testing.T) {
	testkit.Long(t)
	w, other, secure := newWorld(t), newWorld(t), newWorld(t)
	secure.overTLS()
	worlds := []*world{w, other, secure}
	for _, each := range worlds {
		each.threaten("always.example.com/")
		each.google.AddThreat("always.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
		each.host = w.host
	}
	c := newChild(t, w)
	variants := w.reloadVariants(t, other, secure)
	c.configure(variants[0].corefile)
	c.start()
	rests(w, c)
	r := &reloading{crowdOfStubs: crowdOfStubs{t: t, address: c.address}, child: c, worlds: worlds}
	r.visit(variants)
	refused := r.refused
	time.Sleep(time.Second) // what goes soon does not count
	before, updates := c.resources(), r.fetches()
	r.begin(6, 2*time.Millisecond, "udp", "tcp")
	for n := range *reloads {
		r.reload(variants[n%len(variants)])
	}
	r.reload(variants[0])
	r.end()
	after := c.resources()
	for end := time.Now().Add(20 * time.Second); !after.mostly(before) && time.Now().Before(end); after = c.resources() {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d reloads, %d of them refused: %d queries, %d asked again, %d lost; before %s, after %s",
		*reloads, r.refused-refused, r.asked.Load(), r.again.Load(), r.lost.Load(), before, after)
	testkit.Equal(t, "updates, with those from before", r.fetches(), updates)
	testkit.Equal(t, "queries: lost and wrong ones", [2]int64{r.lost.Load(), r.wrong.Load()}, [2]int64{})
	testkit.Equal(t, "some were asked", r.asked.Load() > 0, true)
	if !after.mostly(before) {
		t.Errorf("Expected what there was before, %s, got %s:\n%s", before, after, c.Output())
	}
	c.Signal(syscall.SIGTERM)
	c.Wait()
}

// plain answers by template instead of forward and cache.
func (w *world) plain(properties ...string) string {
	return strings.Replace(w.loadCorefile(":0", properties...), "\tcache\n", "", 1)
}

// reloading reloads a server that is asked all the while.
type reloading struct {
	crowdOfStubs
	child   *child
	worlds  []*world
	done    int // reloads
	refused int // of them
}

// crowdOfStubs asks a server for a threat and for names that are none.
type crowdOfStubs struct {
	t       testing.TB
	address string
	stop    atomic.Bool
	load    sync.WaitGroup

	asked, again, lost, wrong atomic.Int64 // queries
	at                        atomic.Int64 // reloads
}

// visit reloads with each Corefile twice: all that is made once, such as the lists of other servers, is there from then
// on. The first visit causes the requests that the variant says, and no others. Queries are asked as soon as each
// server has lists: from there on lists stay in force, also while another protocol's are fetched.
func (r *reloading) visit(variants []reloadVariant) {
	r.child.t.Helper()
	want := map[*world]int{variants[0].world: variants[0].requests}
	for n, v := range slices.Concat(variants[1:], variants) {
		if n == 4 { // each server has been asked
			r.begin(6, 2*time.Millisecond, "udp", "tcp")
		}
		if n < len(variants)-1 {
			want[v.world] += v.requests
		}
		r.reload(v)
		testkit.Until(v.world.t, fmt.Sprint("the requests after reload ", r.done), func() bool { return len(v.world.fetches()) >= want[v.world] })
		testkit.Equal(r.child.t, fmt.Sprintf("requests after reload %d with\n%s", r.done, v.corefile), len(v.world.fetches()), want[v.world])
	}
	r.end()
}

// fetches returns how many requests for lists the servers have had.
func (r *reloading) fetches() (n int) {
	for _, w := range r.worlds {
		n += len(w.fetches())
	}
	return n
}

func (c *crowdOfStubs) begin(clients int, pause time.Duration, networks ...string) {
	c.stop.Store(false)
	for client := range clients {
		c.load.Go(func() {
			for n := 0; !c.stop.Load(); n++ {
				c.ask(networks[client%len(networks)], client, n)
				time.Sleep(pause)
			}
		})
	}
}

func (c *crowdOfStubs) end() {
	c.stop.Store(true)
	c.load.Wait()
}

func (r *reloading) protects() bool {
	answer, _, err := (&dns.Client{Timeout: 3 * time.Second}).Exchange(threatQuery(), r.child.address)
	return err == nil && isBlocked(answer)
}

func threatQuery() *dns.Msg { return query("www.always.example.com.", dns.TypeA) }

// ask asks as a stub resolver does: again, up to twice, if there is no answer. CoreDNS
// closes a TCP connection, and the socket of UDP, while queries may be in their buffers.
func (c *crowdOfStubs) ask(network string, client, n int) {
	m, threat := threatQuery(), n%2 == 0
	if !threat {
		m.Question[0].Name = fmt.Sprintf("host%d-%d.example.org.", client, n%50)
	}
	stub := &dns.Client{Net: network, Timeout: 3 * time.Second}
	c.asked.Add(1)
	answer, _, err := stub.Exchange(m, c.address)
	for tries := 0; err != nil && tries < 2; tries++ {
		c.again.Add(1)
		answer, _, err = stub.Exchange(m, c.address)
	}
	if err != nil {
		c.lost.Add(1)
		return
	}
	short := len(answer.Answer) == 1 && answer.Answer[0].Header().Ttl <= 5 // a late confirmation, which is allowed
	if (isBlocked(answer) != threat && !short || answer.Rcode == dns.RcodeServerFailure) && c.wrong.Add(1) <= 3 {
		c.t.Errorf("%s: Expected blocked %v after reload %d, got\n%v", m.Question[0].Name, threat, c.at.Load(), answer)
	}
}

func (r *reloading) reload(v reloadVariant) {
	r.child.t.Helper()
	// The cache of answers ends with an engine. What is asked for again has to be in the
	// cache before: the engine that ends could ask for it after the server is told.
	testkit.Until(r.child.t, fmt.Sprint("protection before reload ", r.done), func() bool { return r.done == 0 || r.protects() })
	for _, w := range r.worlds {
		w.google.ClientStarted()
	}
	r.child.configure(v.corefile)
	r.child.Signal(syscall.SIGUSR1)
	r.done++
	r.at.Store(int64(r.done))
	complete, refused := 0, 0
	testkit.Until(r.child.t, "the end of a reload", func() bool {
		text := r.child.Output()
		complete, refused = strings.Count(text, "[INFO] Reloading complete"), strings.Count(text, "[ERROR] SIGUSR1")
		return complete+refused >= r.done
	})
	if v.refused {
		r.refused++
	}
	if refused != r.refused {
		r.child.t.Fatalf("Expected %d refused reloads, got %d:\n%s", r.refused, refused, r.child.Output())
	}
	time.Sleep(20 * time.Millisecond) // queries under the new Corefile
}

type reloadVariant struct {
	world    *world // whose server is asked
	corefile string
	refused  bool
	requests int // for lists, that the first reload with it causes
}

// reloadVariants returns the cycle of TestReloads. It changes each setting of an engine.
func (w *world) reloadVariants(t *testing.T, other, secure *world) []reloadVariant {
	taken, err := net.Listen("tcp", w.host+":0")
	testkit.Must(t, err)
	t.Cleanup(func() { taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	elsewhere, nowhere, webrisk := *w, *w, *w
	elsewhere.db, nowhere.db = t.TempDir(), "off"
	webrisk.protocol = protocol.DialectWebRisk
	dir := t.TempDir()
	ca := secure.authority(t, dir)
	cert, certKey := testkit.Certificate(t, dir)
	key := writeFile(t, dir, "api.key", "another\n")
	causes := func(n int, at *world, corefile string) reloadVariant {
		return reloadVariant{world: at, corefile: corefile, requests: n}
	}
	accepted := func(corefile string) reloadVariant { return causes(0, w, corefile) }
	refused := func(corefile string) reloadVariant { return reloadVariant{world: w, corefile: corefile, refused: true} }
	all := []reloadVariant{
		causes(1, w, w.plain()),
		accepted(w.plain()),
		causes(1, other, other.plain()),
		causes(1, secure, secure.plain("tls "+ca)),
		causes(0, secure, secure.plain("tls "+cert+" "+certKey+" "+ca)),
		accepted(w.plain("ttl 50s", "confirm_timeout 3s")),
		accepted(w.plain("cache 777")),
		refused(w.plain("no_such_property")),
		accepted(w.plain("max_entries 4096")),
		refused("not a Corefile {"),
		accepted(w.plain("lists se-4b")),
		causes(1, w, w.plain("mode realtime")), // the list of likely safe hosts
		refused(w.plain() + "other.example:" + port + " {\n\tbind " + w.host + "\n\ttemplate IN A\n}\n"),
		accepted(elsewhere.plain()),
		accepted(nowhere.plain()),
		accepted(w.plain("mode nostorage")), // without lists: the next one's are on disk
		accepted(w.plain("resolver " + w.upstream)),
		causes(1, w, w.plain("api_key another")), // a new key is asked with at once
		accepted(w.plain("api_key_file " + key)), // which has the same key
		accepted(w.plain("budget 100000")),
		accepted(w.plain("budget 100000 20%")),
		causes(3, w, webrisk.plain()),                // another protocol has other lists, and this one a request for each
		accepted(webrisk.plain("token_file " + key)), // a token is no other asker
	}
	for _, more := range moreVariants {
		all = append(all, more(w)...)
	}
	return all
}

// moreVariants are variants of protocols in files of their own.
var moreVariants []func(w *world) []reloadVariant

// overTLS makes the server listen by TLS too, at an endpoint that replaces the other one.
func (w *world) overTLS() {
	server := httptest.NewTLSServer(w.google)
	w.t.Cleanup(server.Close)
	w.endpoint, w.certificate = server.URL, server.Certificate()
}

// authority writes the certificate of the server into a file, which it returns.
func (w *world) authority(t *testing.T, dir string) string {
	return writeFile(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.certificate.Raw})))
}

var soakTime = flag.Duration("soak", 3*time.Second, "how long TestSoak lasts")

// TestSoak has all at once: queries, new versions of lists, faults of the servers, reloads with other settings, and two
// relays that die in turn. No verdict may be wrong, and memory and goroutines stay the same.
func TestSoak(t *testing.T) {
	testkit.Long(t)
	defer noMoreGoroutines(t, runtime.NumGoroutine())
	t.Run("soak", soak)
}

// soaked are servers that an engine asks: one, or two relays.
type soaked struct {
	world   *world
	servers []*protocoltest.Server
	asked   []int     // requests that each server has forgotten
	relays  []*mortal // of the servers, if they are relays
}

// mortal is a relay that can die: its server hears nothing then.
type mortal struct {
	http.Handler
	dead atomic.Bool
}

func (m *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.dead.Load() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	m.Handler.ServeHTTP(w, r)
}

func soak(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	relays, second, sockets := newRelays(t, "always.example.com/")
	all := []*soaked{
		{world: w, servers: []*protocoltest.Server{w.google}},
		{world: other, servers: []*protocoltest.Server{other.google}},
		{world: relays, servers: []*protocoltest.Server{relays.google, second}},
	}
	for _, socket := range sockets {
		relay := &mortal{Handler: socket.Config.Handler}
		socket.Config.Handler, all[2].relays = relay, append(all[2].relays, relay)
	}
	for _, s := range all {
		s.world.host = w.host
		s.asked = make([]int, len(s.servers))
		for _, server := range s.servers {
			server.SetMinimumWait("se-4b", time.Second)
			server.SetCacheDuration(100 * time.Millisecond)
		}
		if len(s.servers) == 1 {
			s.world.threaten("always.example.com/")
		}
	}
	for _, s := range all[1:] { // their lists have to be on disk before they take over
		s.world.start(s.world.soakCorefile(":0"))
		s.world.updated(1)
		s.world.stop()
	}
	w.serve(w.soakCorefile(strings.TrimPrefix(testkit.FreeAddress(t, w.host), w.host)))
	address := w.address("udp")
	stubs := &crowdOfStubs{t: t, address: address}
	stubs.begin(8, 0, "udp")
	stubs.load.Go(func() { churn(all, &stubs.stop) })
	var curve []float64 // the live heap of this process in MiB, each second
	stubs.load.Go(func() {
		for sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}; !stubs.stop.Load(); {
			time.Sleep(time.Second)
			metrics.Read(sample)
			curve = append(curve, float64(sample[0].Value.Uint64())/(1<<20))
		}
	})
	done := 0
	for end := time.Now().Add(*soakTime); time.Now().Before(end); done++ {
		time.Sleep(400 * time.Millisecond)
		now := all[done/2%len(all)]
		if now.world.engine() == nil {
			for _, server := range now.servers {
				server.ClientStarted() // its cache ended with the engine
			}
		}
		corefile := now.world.soakCorefile(strings.TrimPrefix(address, w.host), []string{"ttl 50s", "ttl 60s"}[done%2])
		testkit.Is(t, "a reload", w.reload(corefile), nil)
	}
	stubs.end()
	testkit.Equal(t, "there are answers", stubs.asked.Load() > stubs.lost.Load(), true)
	w.stop()
	wantEngines(t, 0, 0) // after the shutdown
	var requests []int
	for _, s := range all {
		for i, server := range s.servers {
			requests = append(requests, s.asked[i]+len(server.Requests("")))
		}
	}
	t.Logf("%s: %d reloads; %d requests to each server; %.1f MiB more live memory a minute", *soakTime, done, requests, slope(curve))
	if done > 50 && requests[3] == 0 {
		t.Error("Expected the second relay to take over from the first one")
	}
	testkit.Between(t, "MiB more each minute", max(0, slope(curve)), 0, 16)
}

func (w *world) soakCorefile(port string, properties ...string) string {
	return w.loadCorefile(port, append(properties, "lists se-4b")...)
}

// churn makes new versions of lists, and makes servers slow, fail searches, and die.
func churn(all []*soaked, stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		for _, s := range all {
			for i, server := range s.servers {
				s.asked[i] += server.Forget(100) // it remembers half a minute, so that memory can be flat
				(&world{google: server}).publish("se-4b", "always.example.com/", fmt.Sprintf("new%d.example.com/", n))
				switch {
				case n%20 == 5:
					server.Break("search", 1, protocoltest.Fault{Delay: 300 * time.Millisecond})
				case n%20 == 10:
					server.Break("update", 1, protocoltest.Fault{Delay: 500 * time.Millisecond})
				case n%40 == 15 && s.relays == nil:
					server.Break("search", 1, protocoltest.Fault{Status: 500})
				}
			}
			for i, relay := range s.relays { // each in turn, and both are well in between
				relay.dead.Store(n/20%4 == 2*i)
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// slope returns by how much a curve of seconds grows each minute: the last third's mean against the mean of the third before.
func slope(curve []float64) float64 {
	third := len(curve) / 3
	if third < 5 {
		return 0
	}
	mean := func(part []float64) (sum float64) {
		for _, v := range part {
			sum += v / float64(len(part))
		}
		return sum
	}
	last, before := curve[len(curve)-third:], curve[len(curve)-2*third:len(curve)-third]
	return (mean(last) - mean(before)) * 60 / float64(third)
}

func noMoreGoroutines(t *testing.T, most int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > most && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if n := runtime.NumGoroutine(); n > most {
		pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
		t.Fatalf("Expected at most %d goroutines, as before, got %d", most, n)
	}
}

// loadCorefile answers by template instead of forward, some of whose goroutines outlive a reload.
func (w *world) loadCorefile(port string, properties ...string) string {
	template := "template IN A {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}"
	return strings.NewReplacer(":0", port, "forward . "+w.upstream, template).Replace(w.corefile(append([]string{"limit off"}, properties...)...))
}

// BenchmarkCollision measures what a harmless name that collides with a prefix costs its client, over real sockets: the
// time that the answer takes beyond what upstream alone takes. It should be max(0, search - upstream), at most
// confirm_timeout - upstream, and nothing once the answer of the server is kept: a search of 0.
func BenchmarkCollision(b *testing.B) {
	const upstream = 30 * time.Millisecond
	for _, search := range []time.Duration{30 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, time.Second, 0} {
		b.Run(fmt.Sprintf("upstream=%s/search=%s", upstream, search), func(b *testing.B) {
			w := newWorld(b)
			w.upstream = startUpstream(b, upstream)
			var colliding []string
			for i := range 2000 {
				colliding = append(colliding, fmt.Sprintf("host%d.example.com/", i))
			}
			w.publish("se-4b", colliding...)
			w.run("limit off", "confirm_timeout 500ms")
			w.google.Break("search", 1<<30, protocoltest.Fault{Delay: search})
			took := func(name string) time.Duration {
				begun := time.Now()
				w.ask(name, dns.TypeA)
				return time.Since(begun)
			}
			took("host1999.example.com.") // connections are open from here on, and this one is kept
			var with, without time.Duration
			for n := 0; b.Loop(); n++ {
				name := fmt.Sprintf("host%d.example.com.", n%1999)
				if search == 0 {
					name = fmt.Sprintf("n%d.host1999.example.com.", n)
				}
				with += took(name)
				without += took(fmt.Sprintf("clean%d.example.com.", n))
			}
			b.ReportMetric(float64((with-without).Microseconds())/1000/float64(b.N), "added-ms/op")
		})
	}
}
