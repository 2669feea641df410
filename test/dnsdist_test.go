package test

import (
	"context"
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

// The configurations of the page for providers: dnsdist with its packet cache in front of two servers. A name that becomes
// listed while clients ask is blocked for lines that are protected when its TTL has ended, and for others
// never; a verdict that has ended blocks nobody. It prints what a query costs the three programs.
func TestDnsdistKeepsLinesApart(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	program := testkit.Program(t, "dnsdist")
	section := sectionOf(t, "docs/provider.md", "Who is protected")
	upstream := aliases(t, fmt.Sprintf("@ %.0f IN A %s", dnsdistTTL.Seconds(), upstreamAddress))
	page := blocks(section, "corefile")[0]
	nodes := []*behindDnsdist{startBehindDnsdist(t, page, upstream), startBehindDnsdist(t, page, upstream)}
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
	const another, notProtected = "\xea\x00\x02ab", "\xe0\x00\x01\x00"
	for values, blocked := range map[string]bool{asProtected: true, another + asProtected: true, notProtected: false, "": false} {
		testkit.Equal(t, fmt.Sprintf("blocked by the values %q", values), isBlocked(askBehindProxy(t, nodes[0].address, values, known)), blocked)
	}

	// What the load has cost so far: processor time in seconds, and queries that reached CoreDNS.
	spent := func() (s struct{ dnsdist, nodes, own, missed float64 }) {
		s.dnsdist, s.own = testkit.CPUSeconds(t, front.Pid()), testkit.CPUSeconds(t, os.Getpid())
		for _, n := range nodes {
			s.nodes += testkit.CPUSeconds(t, n.Pid())
			s.missed += n.metric("coredns_dns_requests_total")
		}
		return s
	}
	before, begun := spent(), time.Now()
	c.start()
	defer c.end()
	for _, n := range nodes {
		n.list(lateName)
	}
	soon("both servers to have the new list", func() bool {
		return !slices.ContainsFunc(nodes, func(n *behindDnsdist) bool { return !isBlocked(askBehindProxy(t, n.address, asProtected, late)) })
	})
	listed, life := time.Now(), max(*dnsdistTTL, 5*time.Second) // *cache* makes five seconds of a shorter TTL
	passed := listed                                            // when the last query that passed was sent
	soon("the name to be blocked behind the packet cache", func() bool {
		sent := time.Now()
		blocked, err := c.verdict(protectedLine, late)
		if err == nil && !blocked {
			passed = sent
		}
		return blocked
	})
	took := time.Since(listed).Round(10 * time.Millisecond)
	// dnsdist counts whole seconds, and keeps an answer from when it comes, two seconds after the query at the latest.
	testkit.Between(t, "how long the late name passes for protected lines, but for its TTL", passed.Sub(listed), 0, life+3*time.Second)
	c.walking.Wait()
	answers, lasted, after := c.answers.Load(), time.Since(begun), spent()
	c.end()
	dnsdist, coredns := after.dnsdist-before.dnsdist, after.nodes-before.nodes
	t.Logf("%d names, %d queries in %s: %.0f queries per core-second of the whole; %.1f s of it dnsdist, %.1f s the two CoreDNS; beside it %.1f s this test with its name server",
		c.names, answers, lasted.Round(100*time.Millisecond), float64(answers)/max(dnsdist+coredns, 0.01), dnsdist, coredns, after.own-before.own)
	t.Logf("%.1f %% from the packet cache; a name that becomes listed, with a TTL of %s, is blocked behind it after %s", 100*(1-(after.missed-before.missed)/float64(answers)), *dnsdistTTL, took)
	t.Logf("%d of %d queries of protected lines for threats passed, %d others did not, %d had no answer or an error", c.passed.Load(), c.threats.Load(), c.wrong.Load(), c.failed.Load())
	testkit.Between(t, "a hundred times the threats that passed", c.passed.Load()*100, 0, c.threats.Load())
	testkit.Between(t, "a hundred times the queries without an answer", c.failed.Load()*100, 0, answers)
	for _, n := range nodes {
		n.google.RemoveThreat(strings.TrimSuffix(strings.TrimPrefix(late, "www."), ".") + "/")
	}
	soon("the verdict to end", func() bool { return !c.blocked(protectedLine, late) })
	soon("the other listed name to stay blocked", func() bool { return c.blocked(protectedLine, known) })
	c.blocked(otherLine, known)
}

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

func (n *behindDnsdist) list(more ...int) {
	var listed []string
	for i := firstThreat; i < *dnsdistNames; i += listedEach {
		more = append(more, i)
	}
	for _, i := range more {
		listed = append(listed, fmt.Sprintf("h%07d.example/", i))
		if i == lateName || i%threatEach == firstThreat {
			n.google.AddThreat(listed[len(listed)-1], sbv5.ThreatType_SOCIAL_ENGINEERING)
		}
	}
	n.google.Publish("se-4b", prefixesOf(listed...))
}

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

type crowd struct {
	t     *testing.T
	front string
	names int

	answers, failed, wrong atomic.Int64 // failed: lost, or neither an address nor NXDOMAIN
	threats, passed        atomic.Int64 // queries of protected lines for threats, and those that were not blocked

	walking, all sync.WaitGroup // walking: for the first time through all names
	stop         atomic.Bool
}

const (
	linesOfAKind   = 64 // each waits for its answer
	queriesPerName = 4  // of each kind of line: one for each name in order, the others for popular ones
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

// ask asks over one socket, at full speed until each name of this line has been asked for, and slowly after that.
func (c *crowd) ask(line string, first int) {
	walked := sync.OnceFunc(c.walking.Done)
	defer walked()
	client := clientAt(line)
	client.Timeout = 3 * time.Second
	conn, err := client.Dial(c.front)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer conn.Close()
	popular := rand.NewZipf(rand.New(rand.NewPCG(uint64(first), uint64(line[len(line)-1]))), 1.05, 1, uint64(c.names-1))
	for next, asked := first, 1; !c.stop.Load(); asked++ {
		name := int(popular.Uint64())
		if asked%queriesPerName == 0 && next < c.names {
			name, next = next, next+linesOfAKind
		}
		m, _, err := client.ExchangeWithConn(query(crowdName(name), dns.TypeA), conn)
		if c.answers.Add(1); err != nil {
			c.failed.Add(1)
			continue
		}
		c.judge(line == protectedLine, name, m.Rcode)
		if next >= c.names {
			walked()
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// judge looks at an answer: lines that are not protected get no NXDOMAIN. Of the late name protected ones may get both.
func (c *crowd) judge(protected bool, name, rcode int) {
	blocked := rcode == dns.RcodeNameError
	switch {
	case !blocked && rcode != dns.RcodeSuccess:
		c.failed.Add(1)
	case protected && name == lateName:
	case protected && name%threatEach == firstThreat:
		if c.threats.Add(1); !blocked {
			c.passed.Add(1)
		}
	case blocked:
		if c.wrong.Add(1) == 1 {
			c.t.Errorf("%s: Expected an address, protected: %t", crowdName(name), protected)
		}
	}
}

// blocked is verdict, and reports no answer as a name that passes.
func (c *crowd) blocked(line, name string) bool {
	blocked, _ := c.verdict(line, name)
	return blocked
}

// verdict asks as a line. The answer's TTL ends with the verdict, and a line that is not protected gets no such answer.
func (c *crowd) verdict(line, name string) (blocked bool, err error) {
	client := clientAt(line)
	client.Timeout = 2 * time.Second
	m, _, err := client.Exchange(query(name, dns.TypeA), c.front)
	if err != nil {
		return false, err
	}
	if blocked = isBlocked(m); blocked {
		testkit.Equal(c.t, "who is blocked from "+name, line, protectedLine)
		testkit.Between(c.t, "the TTL of "+name, m.Ns[0].Header().Ttl, 0, uint32(dnsdistTTL.Seconds()))
	}
	return blocked, nil
}

// askBehindProxy asks over UDP as a proxy does, for a line with these values.
func askBehindProxy(t *testing.T, address, values, name string) *dns.Msg {
	t.Helper()
	conn, err := net.Dial("udp", address)
	testkit.Must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	question, err := query(name, dns.TypeA).Pack()
	testkit.Must(t, err)
	header := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x12") // version 2, IPv4 over UDP
	header = binary.BigEndian.AppendUint16(header, uint16(12+len(values)))
	header = append(header, 198, 51, 100, 7, 192, 0, 2, 1, 0x30, 0x39, 0, 53)
	raw, err := overConn(ctx, conn, slices.Concat(header, []byte(values), question))
	testkit.Must(t, err)
	m := new(dns.Msg)
	testkit.Must(t, m.Unpack(raw))
	return m
}
