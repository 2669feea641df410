package test

import (
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// TestReloads reloads a CoreDNS in a process of its own by SIGUSR1, under load, again and
// again: with the same Corefile, with other settings of an engine, and with Corefiles that
// are refused. No query may be lost, nothing leaked, and the servers judge the requests.
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
	before, updates := r.settled(resources{}), len(r.fetches())
	r.begin(6, 2*time.Millisecond, "udp", "tcp")
	for n := range *reloads {
		r.reload(variants[n%len(variants)])
	}
	r.reload(variants[0])
	r.end()
	after := r.settled(before)
	t.Logf("%d reloads, %d of them refused: %d queries, %d asked again, %d lost; %d updates and %d searches; before %s, after %s",
		*reloads, r.refused-refused, r.asked.Load(), r.again.Load(), r.lost.Load(), len(r.fetches()), r.searches(), before, after)
	if got := r.fetches(); len(got) > updates {
		t.Errorf("Expected no update but the %d from before, got %+v", updates, got)
	}
	if r.lost.Load() > 0 || r.wrong.Load() > 0 || r.asked.Load() == 0 {
		t.Errorf("Expected right answers to all queries, got %d lost and %d wrong of %d", r.lost.Load(), r.wrong.Load(), r.asked.Load())
	}
	if !after.mostly(before) {
		t.Errorf("Expected what there was before, %s, got %s:\n%s", before, after, c.goroutines())
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

// visit reloads with each Corefile twice: all that is made once, such as the lists of other
// servers, is there from then on. The first visit causes the requests that the variant says,
// and no others. Queries are asked as soon as each server has lists: from there on lists stay
// in force, also while another protocol's are fetched.
func (r *reloading) visit(variants []reloadVariant) {
	r.child.t.Helper()
	want := map[*world]int{variants[0].world: variants[0].requests}
	for n, v := range slices.Concat(variants[1:], variants) {
		if n == newServers {
			r.begin(6, 2*time.Millisecond, "udp", "tcp")
		}
		if n < len(variants)-1 {
			want[v.world] += v.requests
		}
		r.reload(v)
		testkit.Until(v.world.t, fmt.Sprint("the requests after reload ", r.done), func() bool { return len(v.world.fetches()) >= want[v.world] })
		if got := v.world.fetches(); len(got) > want[v.world] {
			r.child.t.Errorf("Expected %d requests for lists after reload %d with\n%s\ngot %+v", want[v.world], r.done, v.corefile, got)
		}
	}
	r.end()
}

func (r *reloading) fetches() (all []protocoltest.Request) {
	for _, w := range r.worlds {
		all = append(all, w.fetches()...)
	}
	return all
}

func (r *reloading) searches() (n int) {
	for _, w := range r.worlds {
		n += len(w.searches())
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
	if isBlocked(answer) != threat && !short || answer.Rcode == dns.RcodeServerFailure {
		if c.wrong.Add(1) > 3 {
			return
		}
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

// settled waits until what is in use is mostly what there was before, or for a second if
// that is nothing, and returns it.
func (r *reloading) settled(before resources) resources {
	if before == (resources{}) {
		time.Sleep(time.Second)
		return r.child.resources()
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if now := r.child.resources(); now.mostly(before) || time.Now().After(end) {
			return now
		}
	}
}

// goroutines returns what the log says, and the mappings that are files.
func (c *child) goroutines() string {
	maps, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.Pid()), "maps"))
	out := c.Output()
	return string(maps) + out[max(0, len(out)-4000):]
}

// reloadVariant is a Corefile to reload with.
type reloadVariant struct {
	world    *world // whose server is asked
	corefile string
	refused  bool
	requests int // for lists, that the first reload with it causes
}

// newServers is how many variants come after the first one until each server has been asked.
const newServers = 4

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
	causes := func(requests int, at *world, corefile string) reloadVariant {
		return reloadVariant{world: at, corefile: corefile, requests: requests}
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
