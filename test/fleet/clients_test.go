package fleet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// client is one of a fleet.
type client interface {
	// verdict decides about a host. Unsure says that the server could not be asked, and err why.
	verdict(host string) (v lookup.Verdict, err error)
}

// resolver is the address of a CoreDNS as a process.
type resolver string

// startResolvers starts a CoreDNS for each endpoint, all at once, with the lists on disk.
func startResolvers(t testing.TB, endpoints []string) []client { return resolvers(t, endpoints, false) }

// resolvers is startResolvers; a cold CoreDNS has an empty folder.
func resolvers(t testing.TB, endpoints []string, cold bool) (all []client) {
	dir := t.TempDir()
	var processes []*testkit.Process
	for i, endpoint := range endpoints {
		r := resolver(testkit.FreeAddr(t))
		db, file := filepath.Join(dir, fmt.Sprint("db", i)), filepath.Join(dir, fmt.Sprint("Corefile", i))
		if !cold {
			fetch(t, db, endpoint)
		}
		testkit.Must(t, os.WriteFile(file, []byte(r.corefile(endpoint, db)), 0o600))
		processes = append(processes, testkit.Start(t, program(t, "coredns"), "-conf", file))
		all = append(all, r)
	}
	for _, p := range processes {
		p.Line("CoreDNS-", 30*time.Second)
	}
	return all
}

// corefile is for a resolver that waits long for its server, as the machine may be busy, and whose only client may ask all at once.
func (r resolver) corefile(endpoint, db string) string {
	_, port, _ := net.SplitHostPort(string(r))
	return fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	safebrowsing {
		endpoint %s
		lists se-4b mw-4b
		db %s
		confirm_timeout 10s
		limit off
	}
	template ANY ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
}
`, port, endpoint, db)
}

// verdict implements client. A resolver that cannot ask its server answers as if the name were safe.
func (r resolver) verdict(host string) (lookup.Verdict, error) {
	c := dns.Client{Timeout: 20 * time.Second}
	answer, _, err := c.Exchange(new(dns.Msg).SetQuestion(host+".", dns.TypeA), string(r))
	switch {
	case err != nil:
		return lookup.Unsure, err
	case answer.Rcode == dns.RcodeNameError:
		return lookup.Unsafe, nil
	}
	return lookup.Safe, nil
}

// embedded is an engine of this process: a CoreDNS without a name server.
type embedded struct {
	*engine.Engine
	fetches *recorder
	timeout time.Duration // of a confirmation
}

// startEmbedded starts an engine for each endpoint, with sockets of its own, and waits for the lists.
func startEmbedded(t testing.TB, endpoints []string) []*embedded {
	t.Helper()
	all := engines(t, endpoints, func() time.Duration { return 0 })
	for i, c := range all {
		testkit.Until(t, fmt.Sprintf("the lists of client %d", i), func() bool { return len(c.Lists()) == 2 })
	}
	return all
}

// engines is startEmbedded for engines whose first contact comes later. It does not wait for lists.
func engines(t testing.TB, endpoints []string, firstContact func() time.Duration) []*embedded {
	t.Helper()
	all := make([]*embedded, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			transport := &http.Transport{MaxIdleConnsPerHost: 2}
			c := &embedded{fetches: &recorder{RoundTripper: transport}, timeout: 10 * time.Second}
			registry := engine.NewRegistry(engine.Edge{Transport: c.fetches, FirstContact: firstContact})
			s := engine.Settings{Endpoint: endpoint, Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}
			var release func()
			var err error
			if c.Engine, release, err = registry.Acquire(s, ""); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { release(); transport.CloseIdleConnections() })
			all[i] = c
		})
	}
	wg.Wait()
	if slices.Contains(all, nil) {
		t.FailNow()
	}
	return all
}

// verdict implements client.
func (c *embedded) verdict(host string) (lookup.Verdict, error) {
	d, candidates := c.Checker.Check(lookup.FromQname(host + "."))
	if candidates != nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		d = c.Checker.Confirm(candidates, nil).Wait(ctx)
	}
	return d.Verdict, d.Err
}

// recorder notes when a client asks for lists.
type recorder struct {
	http.RoundTripper
	mu      sync.Mutex
	fetches []time.Time
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.URL.Path != "/v5/hashes:search" {
		r.mu.Lock()
		r.fetches = append(r.fetches, time.Now())
		r.mu.Unlock()
	}
	return r.RoundTripper.RoundTrip(q)
}
