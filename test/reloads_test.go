package test

import (
	"flag"
	"fmt"
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
	r := &reloading{child: c, worlds: worlds}
	r.visit(variants)
	refused := r.refused
	before, updates := r.settled(resources{}), len(r.fetches())
	r.begin()
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
	child   *child
	worlds  []*world
	done    int // reloads
	refused int // of them
	stop    atomic.Bool
	load    sync.WaitGroup

	asked, again, lost, wrong atomic.Int64 // queries
	at                        atomic.Int64 // done, for the clients
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
			r.begin()
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

// fetches returns the requests for lists of all servers.
func (r *reloading) fetches() (all []protocoltest.Request) {
	for _, w := range r.worlds {
		all = append(all, w.fetches()...)
	}
	return all
}

// searches returns how many searches there were of all servers.
func (r *reloading) searches() (n int) {
	for _, w := range r.worlds {
		n += len(w.searches())
	}
	return n
}

func (r *reloading) begin() {
	r.stop.Store(false)
	for client := range 6 {
		r.load.Go(func() {
			for n := 0; !r.stop.Load(); n++ {
				r.ask([]string{"udp", "tcp"}[client%2], client, n)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}

func (r *reloading) end() {
	r.stop.Store(true)
	r.load.Wait()
}

// protects reports whether a threat is blocked.
func (r *reloading) protects() bool {
	answer, _, err := (&dns.Client{Timeout: 3 * time.Second}).Exchange(threatQuery(), r.child.address)
	return err == nil && isBlocked(answer)
}

func threatQuery() *dns.Msg {
	m := new(dns.Msg).SetQuestion("www.always.example.com.", dns.TypeA)
	m.SetEdns0(1232, false)
	return m
}

// ask asks as a stub resolver does: again, up to twice, if there is no answer. CoreDNS
// closes a TCP connection, and the socket of UDP, while queries may be in their buffers.
func (r *reloading) ask(network string, client, n int) {
	m, threat := threatQuery(), n%2 == 0
	if !threat {
		m.Question[0].Name = fmt.Sprintf("host%d-%d.example.org.", client, n%50)
	}
	c := &dns.Client{Net: network, Timeout: 3 * time.Second}
	r.asked.Add(1)
	answer, _, err := c.Exchange(m, r.child.address)
	for tries := 0; err != nil && tries < 2; tries++ {
		r.again.Add(1)
		answer, _, err = c.Exchange(m, r.child.address)
	}
	if err != nil {
		r.lost.Add(1)
		return
	}
	short := len(answer.Answer) == 1 && answer.Answer[0].Header().Ttl <= 5 // a late confirmation, which is allowed
	if isBlocked(answer) != threat && !short || answer.Rcode == dns.RcodeServerFailure {
		if r.wrong.Add(1) > 3 {
			return
		}
		r.child.t.Errorf("%s: Expected blocked %v after reload %d, got\n%v", m.Question[0].Name, threat, r.at.Load(), answer)
	}
}

// reload waits until the reload has ended.
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
