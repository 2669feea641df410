// Package fleet tests many clients behind a relay: the relay is a process, and so are as many clients as start in bearable time. It is
// a package of its own so that its seconds of waiting run at the same time as the other tests.
package fleet

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// minimumWait is what the judging servers ask for: a second request for lists within a test would be early.
const minimumWait = 30 * time.Minute

// kind is what the judging server knows about a name.
type kind int

const (
	clean       kind = iota // in no list: no client may ask about it
	collides                // its prefix is in a list, but it is no threat
	threatening             // listed and confirmed
	kinds
)

// name is one of the population that all clients look up.
type name struct {
	host string
	kind kind
}

// verdict returns what a client must say about the name.
func (n name) verdict() lookup.Verdict {
	if n.kind == threatening {
		return lookup.Unsafe
	}
	return lookup.Safe
}

// population returns n names, of each kind as many.
func population(n int) (all []name) {
	for i := range n {
		all = append(all, name{fmt.Sprintf("h%d.example", i), kind(i % int(kinds))})
	}
	return all
}

func listed(names []name) (n int) {
	for _, name := range names {
		if name.kind != clean {
			n++
		}
	}
	return n
}

// judged is a judging server on a socket.
type judged struct {
	*protocoltest.Server
	url   string
	names []name
	wait  func() time.Duration // the minimum wait of the next answer with lists; nil: what was set
}

// judge starts a server that judges one client, and knows names. wait is the minimum wait of each answer with lists; nil: minimumWait.
func judge(t testing.TB, names []name, wait func() time.Duration) *judged {
	g := &judged{Server: protocoltest.New(t), names: names, wait: wait}
	publish(g.Server, names)
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	g.url = s.URL
	return g
}

func (g *judged) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if g.wait != nil {
		for _, list := range []string{"se-4b", "mw-4b"} {
			g.SetMinimumWait(list, g.wait())
		}
	}
	g.Server.ServeHTTP(w, q)
}

// publish lists names as phishing, and searches confirm those that are threats.
func publish(g *protocoltest.Server, names []name) {
	g.SetMinimumWait("", minimumWait)
	var entries [][]byte
	for _, name := range names {
		hash := sha256.Sum256([]byte(name.host + "/"))
		if name.kind != clean {
			entries = append(entries, hash[:4])
		}
		if name.kind == threatening {
			g.AddThreat(name.host+"/", sbv5.ThreatType_SOCIAL_ENGINEERING)
		}
	}
	g.Publish("se-4b", entries)
	g.Publish("mw-4b", nil)
}

// cost is how many requests reached judging servers.
type cost struct{ fetches, searches, prefixes int }

func (c cost) minus(before cost) cost {
	return cost{c.fetches - before.fetches, c.searches - before.searches, c.prefixes - before.prefixes}
}

// costOf adds up what reached servers.
func costOf(servers ...*judged) (c cost) {
	for _, g := range servers {
		c.fetches += len(g.Requests("update"))
		for _, s := range g.Requests("search") {
			c.searches++
			c.prefixes += len(s.Prefixes)
		}
	}
	return c
}

// relay is a relay as a process.
type relay struct {
	*testkit.Process
	t        testing.TB
	url      string // for clients
	metrics  string // its URL; "": not to be asked
	db       string
	upstream string // its server, or several as in a Corefile
	flags    []string
	env      []string // as "NAME=VALUE"
}

// startRelay starts a relay with the lists of a server in its folder: so it serves at once, without a random first contact.
func startRelay(t testing.TB, upstream string) *relay {
	t.Helper()
	r := newRelay(t, upstream)
	fetch(t, r.db, upstream)
	r.start()
	return r
}

// newRelay returns a relay that is not started, with an empty folder and with more flags.
func newRelay(t testing.TB, upstream string, flags ...string) *relay {
	t.Helper()
	address := testkit.FreeAddr(t)
	r := &relay{t: t, url: "http://" + address, db: filepath.Join(t.TempDir(), "relay"), upstream: upstream}
	// All clients of a test have one address, so the limit for one would hold for all.
	r.flags = append([]string{"-listen", address, "-admin", "off", "-rate", "0"}, flags...)
	return r
}

// start starts the process, which listens when start returns.
func (r *relay) start() {
	r.t.Helper()
	args := append([]string{"-db", r.db, "-endpoint", strings.ReplaceAll(r.upstream, " ", ","), "-lists", "se-4b,mw-4b"}, r.flags...)
	r.Process = testkit.StartWith(r.t, r.env, program(r.t, "safebrowsing-relay"), args...)
	r.Line("Corefile of each server", 20*time.Second)
}

// fetch fetches the lists into a folder, as its process would do after its first contact.
func fetch(t testing.TB, db, endpoint string) {
	t.Helper()
	status, out := testkit.Run(t, program(t, "safebrowsing"), "update", "-now", "-db", db, "-endpoint", endpoint, "-lists", "se-4b,mw-4b")
	if status != 0 {
		t.Fatalf("fetching lists from %s: status %d: %s", endpoint, status, out)
	}
}

// rotated returns names that begin with the i-th of n parts, so that clients ask for the same ones and for different ones at a time.
func rotated(names []name, i, n int) []name {
	at := i * len(names) / n
	return slices.Concat(names[at:], names[:at])
}

// programs builds the programs once. They are below programDir.
var (
	programDir string
	programs   = sync.OnceValues(func() (map[string]string, error) {
		return testkit.Build(programDir, "coredns", "safebrowsing", "safebrowsing-relay")
	})
)

func TestMain(m *testing.M) {
	clog.Discard()
	testkit.SideBySide(4)
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		panic(err)
	}
	programDir = dir
	m.Run()
	os.RemoveAll(dir)
}

// program returns the path of a program, which it builds if necessary.
func program(t testing.TB, name string) string {
	t.Helper()
	all, err := programs()
	testkit.Must(t, err)
	return all[name]
}
