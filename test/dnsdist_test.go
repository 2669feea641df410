package test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var (
	dnsdistNames = flag.Int("dnsdist.names", 2_000, "how many names TestDnsdistKeepsLinesApart asks for; from 100,000 on it asks the programs of cmd/coredns, whose first contact takes up to a minute")
	dnsdistTTL   = flag.Duration("dnsdist.ttl", 2*time.Second, "the TTL of all names in TestDnsdistKeepsLinesApart, in whole seconds")
)

const (
	protectedLine = "127.0.0.2"
	otherLine     = "127.0.0.3"
	asProtected   = "\xe0\x00\x01\x01" // the value of the PROXY protocol
)

// The two configurations of the page for providers: dnsdist with its packet cache in front of two
// servers. Clients of both kinds ask for all names, and for popular ones again and again. A name that becomes
// listed meanwhile is blocked for lines that are protected when its TTL has ended, and for others
// never; a verdict that has ended blocks nobody. It prints what a query costs the three programs.
func TestDnsdistKeepsLinesApart(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	program := testkit.Program(t, "dnsdist")
	section := sectionOf(t, "docs/provider.md", "Who is protected")
	upstream := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: uint32(dnsdistTTL.Seconds())}, A: net.ParseIP(upstreamAddress)}}
	})
	var nodes []*behindDnsdist
	for range 2 {
		nodes = append(nodes, startBehindDnsdist(t, blocks(section, "corefile")[0], upstream))
	}
	c := &crowd{t: t, front: testkit.FreeAddr(t), names: *dnsdistNames}
	config := strings.NewReplacer("192.0.2.10:53", c.front, "192.0.2.20:53", nodes[0].address, "192.0.2.21:53", nodes[1].address,
		`addMask("198.51.100.0/24")`, `addMask("`+protectedLine+`")`, `"198.51.100.0/24", "203.0.113.0/24"`, `"127.0.0.0/8"`).Replace(blocks(section, "lua")[0])
	front := testkit.Start(t, program, "--supervised", "-C", testkit.Write(t, t.TempDir(), "dnsdist.conf", config))
	known, late := crowdName(firstThreat), crowdName(lateName)
	soon := func(what string, done func() bool) {
		for end := time.Now().Add(2**dnsdistTTL + time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("Still waiting: %s", what)
			}
		}
	}
	for _, n := range nodes {
		n.Line("List se-4b now has", 2*time.Minute)
	}
	soon("a listed name to be blocked", func() bool { return c.blocked(protectedLine, known) })

	cost := func() (sum crowdCost) {
		sum.dnsdist, sum.own = testkit.CPUSeconds(t, front.Pid()), testkit.CPUSeconds(t, os.Getpid())
		for _, n := range nodes {
			sum.nodes += testkit.CPUSeconds(t, n.Pid())
			sum.missed += n.metric("coredns_dns_requests_total")
		}
		return sum
	}
	before, begun := cost(), time.Now()
	c.start()
	defer c.end()
	for _, n := range nodes {
		n.list(lateName)
	}
	soon("both servers to have the new list", func() bool {
		return !slices.ContainsFunc(nodes, func(n *behindDnsdist) bool { return !isBlocked(askBehindProxy(t, n.address, asProtected, late)) })
	})
	c.isListed()
	c.walking.Wait()
	answers, took, after := c.answers.Load(), time.Since(begun), cost()
	soon("the name to be blocked behind the packet cache", func() bool { return c.isBlocked() })
	c.end()
	c.report()
	whole := after.dnsdist - before.dnsdist + after.nodes - before.nodes
	t.Logf("%d names, %d queries in %s: %.0f queries per core-second of the whole; %.1f s of it dnsdist, %.1f s the two CoreDNS; beside it %.1f s this test with its name server",
		c.names, answers, took.Round(100*time.Millisecond), float64(answers)/max(whole, 0.01), after.dnsdist-before.dnsdist, after.nodes-before.nodes, after.own-before.own)
	t.Logf("%.1f %% from the packet cache", 100*(1-(after.missed-before.missed)/float64(answers)))

	for _, n := range nodes {
		n.google.RemoveThreat(strings.TrimSuffix(strings.TrimPrefix(late, "www."), ".") + "/")
	}
	soon("the verdict to end", func() bool { return !c.blocked(protectedLine, late) })
	soon("the other listed name to stay blocked", func() bool { return c.blocked(protectedLine, known) })
	c.blocked(otherLine, known)
}

// crowdCost is what a load has cost so far: processor time in seconds, and queries that reached CoreDNS.
type crowdCost struct{ dnsdist, nodes, own, missed float64 }

// behindDnsdist is a CoreDNS behind dnsdist, with a Safe Browsing server of its own.
type behindDnsdist struct {
	*child
	google *protocoltest.Server
}

// Of the names of a crowd, which have numbers, one in 253 has a prefix in a list, as with Google's lists. One in ten
// of those is a threat. The late name, the second most popular one, is listed later.
const (
	listedEach  = 253
	threatEach  = 10 * listedEach
	firstThreat = 5
	lateName    = 1
)

func crowdName(n int) string { return fmt.Sprintf("www.h%07d.example.", n) }

// list publishes the list of the names that a crowd asks for, with more of them, which are threats.
func (n *behindDnsdist) list(more ...int) {
	var listed []string
	for i := firstThreat; i < *dnsdistNames; i += listedEach {
		listed = append(listed, fmt.Sprintf("h%07d.example/", i))
		if i%threatEach == firstThreat {
			n.google.AddThreat(listed[len(listed)-1], sbv5.ThreatType_SOCIAL_ENGINEERING)
		}
	}
	for _, i := range more {
		listed = append(listed, fmt.Sprintf("h%07d.example/", i))
		n.google.AddThreat(listed[len(listed)-1], sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	n.google.Publish("se-4b", prefixesOf(listed...))
}

// startBehindDnsdist starts a CoreDNS with the Corefile of the page.
func startBehindDnsdist(t *testing.T, page, upstream string) *behindDnsdist {
	w := newWorld(t)
	w.upstream = upstream
	w.google.SetMinimumWait("se-4b", time.Second)
	w.google.SetCacheDuration(*dnsdistTTL)
	n := &behindDnsdist{newChild(t, w), w.google}
	n.list()
	service := page[strings.Index(page, "    safebrowsing {\n"):strings.Index(page, "    cache\n")]
	stanza := w.corefile("lists se-4b", "limit off") // one address stands for all lines
	stanza = stanza[strings.Index(stanza, "\tsafebrowsing {"):strings.Index(stanza, "\tcache")]
	n.configure(strings.NewReplacer(service, stanza, "bind 192.0.2.20", "bind "+w.host, "192.0.2.10/32", "127.0.0.0/8", "9.9.9.9", upstream,
		". {\n", ".:0 {\n\terrors\n").Replace(page))
	if *dnsdistNames < 100_000 {
		n.start()
		return n
	}
	programs, err := testkit.Build(t.TempDir(), "coredns")
	testkit.Must(t, err)
	n.Process = testkit.Start(t, programs["coredns"], "-conf", n.file)
	return n
}

// crowd asks dnsdist for names as lines of both kinds.
type crowd struct {
	t     *testing.T
	front string
	names int

	answers, lost, failed, wrong atomic.Int64 // failed: neither an address nor NXDOMAIN
	threats, passed              atomic.Int64 // queries of protected lines for threats, and those that were not blocked

	walking, all sync.WaitGroup // walking: for the first time through all names
	stop         atomic.Bool

	mu      sync.Mutex
	listed  time.Time // since when both servers block the late name
	arrived time.Time // when an answer came that blocks it, of the first query after that
	last    time.Time // when the last query for it was sent that passed
}

const (
	linesOfAKind   = 4
	queriesPerName = 4  // of each kind of line: one for each name in order, the others for popular ones
	inFlight       = 16 // queries of a line at once
	patience       = 3 * time.Second
	mostLost       = 10_000
)

func (c *crowd) start() {
	for _, line := range []string{protectedLine, otherLine} {
		for i := range linesOfAKind {
			c.walking.Add(1)
			c.all.Go(func() { c.ask(line, i) })
		}
	}
}

func (c *crowd) end() {
	c.stop.Store(true)
	c.all.Wait()
}

// flight is a query without an answer.
type flight struct {
	id   uint16
	name int
	sent time.Time
}

// ask asks over one socket, at full speed until each name of this line has been asked for, and slowly after that.
func (c *crowd) ask(line string, first int) {
	walked := sync.OnceFunc(c.walking.Done)
	defer walked()
	conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(line)}}).Dial("udp", c.front)
	query, packing := new(dns.Msg).SetQuestion(crowdName(0), dns.TypeA).SetEdns0(1232, false).Pack()
	if err != nil || packing != nil {
		c.t.Error(err, packing)
		return
	}
	defer conn.Close()
	number := bytes.Index(query, []byte("0000000"))
	popular := rand.NewZipf(rand.New(rand.NewPCG(uint64(first), uint64(line[len(line)-1]))), 1.05, 1, uint64(c.names-1))
	var flights [inFlight]flight
	send := func(f *flight) {
		f.id, f.sent = f.id+inFlight, time.Now()
		binary.BigEndian.PutUint16(query, f.id)
		for i, rest := number+6, f.name; i >= number; i, rest = i-1, rest/10 {
			query[i] = byte('0' + rest%10)
		}
		_, _ = conn.Write(query) // what is refused has no answer
	}
	next, asked := first, 0
	another := func(f *flight) {
		f.name = int(popular.Uint64())
		if asked++; asked%queriesPerName == 0 && next < c.names {
			f.name, next = next, next+linesOfAKind
		}
		send(f)
	}
	for i := range flights {
		flights[i].id = uint16(i)
		another(&flights[i])
	}
	answer := make([]byte, 1500)
	for !c.stop.Load() && c.lost.Load() < mostLost {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(answer)
		if err != nil || asked%1024 == 0 {
			for i := range flights {
				if time.Since(flights[i].sent) > patience {
					c.lost.Add(1)
					send(&flights[i])
				}
			}
		}
		if err != nil || n < 12 {
			continue
		}
		id := binary.BigEndian.Uint16(answer)
		f := &flights[id%inFlight]
		if f.id != id { // it was sent again
			continue
		}
		c.judge(line == protectedLine, f, int(answer[3]&0xf))
		if next >= c.names {
			walked()
			time.Sleep(5 * time.Millisecond)
		}
		another(f)
	}
}

// judge looks at an answer: lines that are not protected get no NXDOMAIN.
func (c *crowd) judge(protected bool, f *flight, rcode int) {
	c.answers.Add(1)
	blocked := rcode == dns.RcodeNameError
	switch {
	case !blocked && rcode != dns.RcodeSuccess:
		c.failed.Add(1)
	case protected && f.name == lateName:
		c.mu.Lock()
		defer c.mu.Unlock()
		if !blocked && f.sent.After(c.last) {
			c.last = f.sent
		}
		if blocked && c.arrived.IsZero() && !c.listed.IsZero() && f.sent.After(c.listed) {
			c.arrived = time.Now()
		}
	case protected && f.name%threatEach == firstThreat:
		if c.threats.Add(1); !blocked {
			c.passed.Add(1)
		}
	case blocked:
		if c.wrong.Add(1) == 1 {
			c.t.Errorf("%s: Expected an address, protected: %t", crowdName(f.name), protected)
		}
	}
}

// isListed says that both servers block the late name from now on.
func (c *crowd) isListed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = time.Now()
}

func (c *crowd) isBlocked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.arrived.IsZero()
}

// report fails the test if answers were wrong, or the late name passed after its TTL. dnsdist counts whole seconds, and
// an answer that was under way is kept from when it comes. *cache* makes five seconds of a shorter TTL.
func (c *crowd) report() {
	const underWay = 3 * time.Second
	passed, life := c.last.Sub(c.listed), max(*dnsdistTTL, 5*time.Second)
	if passed > life+underWay {
		c.t.Errorf("Expected the late name to be blocked for protected lines within its TTL of %s, passed for %s", life, passed)
	}
	c.t.Logf("TTL %s: a name that becomes listed is blocked behind the packet cache %s after it was in front of it; queries of others for it and all else pass, but for %d",
		life, max(0, c.arrived.Sub(c.listed)).Round(10*time.Millisecond), c.wrong.Load())
	c.t.Logf("%d of %d queries of protected lines for threats passed, %d queries were lost, %d answered with an error", c.passed.Load(), c.threats.Load(), c.lost.Load(), c.failed.Load())
	if c.passed.Load()*100 > c.threats.Load() || c.lost.Load() >= mostLost || c.failed.Load()*100 > c.answers.Load() {
		c.t.Error("Expected threats to be blocked, and queries to be answered")
	}
}

// blocked asks as a line. The answer's TTL ends with the verdict, and a line that is not protected gets no such answer.
func (c *crowd) blocked(line, name string) bool {
	client := dns.Client{Timeout: 2 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(line)}}}
	m, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA).SetEdns0(1232, false), c.front)
	if err != nil {
		return false
	}
	for _, rr := range m.Ns {
		if isBlocked(m) && rr.Header().Ttl > uint32(dnsdistTTL.Seconds()) {
			c.t.Errorf("%s: Expected a TTL of %s at most, got\n%v", name, *dnsdistTTL, m)
		}
	}
	if line == otherLine && isBlocked(m) {
		c.t.Errorf("%s: Expected that it passes for a line that is not protected, got\n%v", name, m)
	}
	return isBlocked(m)
}
