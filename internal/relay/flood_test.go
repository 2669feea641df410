package relay

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var floodAll = flag.Bool("flood.all", false, "let TestFloodOfARelay send 10,000 requests at once; otherwise a sample")

// relayFlood is many requests at once that a relay has to hold, since its server is slow.
type relayFlood struct {
	name    string
	sample  bool
	clients int                // addresses that they come from
	request func(n int) string // the path and the query of the nth request
	lists   bool               // the server is slow with the first lists, else with searches
	drowns  bool               // all connections are taken: others wait for one
}

const listsRequest = "/v5/hashLists:batchGet?names=se-4b&names=mw-4b"

// searchRequest asks about expressions.
func searchRequest(expressions ...string) string {
	query := make(url.Values)
	for _, e := range expressions {
		query.Add("hashPrefixes", param64(prefixOf(e, 4)))
	}
	return "/v5/hashes:search?" + query.Encode()
}

var relayFloods = []relayFlood{
	{name: "one client, one prefix", sample: true, clients: 1, request: func(int) string { return searchRequest(hostName(0) + "/") }},
	{name: "one client, many prefixes", clients: 1, request: func(n int) string { return searchRequest(hostName(n) + "/") }},
	{name: "1,000 clients, one prefix", clients: 1000, request: func(int) string { return searchRequest(hostName(0) + "/") }},
	{name: "1,000 clients, many prefixes", sample: true, clients: 1000, request: func(n int) string { return searchRequest(hostName(n) + "/") }},
	{name: "one client, first lists", clients: 1, request: func(int) string { return listsRequest }, lists: true},
	{name: "1,000 clients, first lists", clients: 1000, request: func(int) string { return listsRequest }, lists: true, drowns: true},
}

// A flood of requests that a relay holds takes bounded memory and goroutines, which are as
// before when it ends. Meanwhile other clients get lists and cached answers.
func TestFloodOfARelay(t *testing.T) {
	testkit.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	requests, connections := 600, 256
	if *floodAll {
		requests, connections = 10_000, DefaultConnections
	}
	t.Logf("%-30s %8s %8s %12s  %-24s %s", "flood", "held", "refused", "others", "MiB -> peak -> after", "goroutines")
	for _, f := range relayFloods {
		if !f.sample && !*floodAll {
			continue
		}
		t.Run(f.name, func(t *testing.T) { f.try(t, requests, connections) })
	}
}

func (f relayFlood) try(t *testing.T, requests, connections int) {
	r := f.start(t, requests, connections)
	before := r.used()
	var flood pouring
	flood.pour(t, f, r, requests)
	took, served := r.others(f.lists)
	peak := r.used()
	held, refused := requests-int(flood.ended.Load()), int(flood.ended.Load())
	close(r.gate)
	flood.end()
	after := r.settled(before)
	t.Logf("%-30s %8d %8d %4d %% %6s  %4.0f -> %4.0f -> %4.0f MiB   %5d -> %5d -> %5d", f.name, held, refused, 100*served/floodOthers, took.Round(time.Millisecond),
		before.mib, peak.mib, after.mib, before.goroutines, peak.goroutines, after.goroutines)
	if served < floodOthers && !f.drowns {
		t.Errorf("Expected all requests of other clients to be served, got %d of %d", served, floodOthers)
	}
	if most := 3*connections + 200; peak.goroutines > most { // two for a connection
		t.Errorf("Expected at most %d goroutines, got %d", most, peak.goroutines)
	}
	if peak.mib-before.mib > 256 || after.goroutines > before.goroutines+50 {
		t.Errorf("Expected less than 256 MiB, and as many goroutines as before, got %+v, %+v and %+v", before, peak, after)
	}
}

// flooded is a relay in a process of its own.
type flooded struct {
	*child
	counts string
	gate   chan struct{} // closed when the server is no longer slow
}

// start starts the relay, with lists unless the flood is for the first ones.
func (f relayFlood) start(t *testing.T, prefixes, connections int) *flooded {
	t.Helper()
	w := newWorld(t)
	w.suspect(append(hosts(prefixes), "evil.example/")...)
	r := &flooded{gate: make(chan struct{}), counts: testkit.FreeAddr(t)}
	var slow atomic.Bool
	slow.Store(f.lists)
	w.listen(func(q *http.Request) error {
		if slow.Load() && strings.Contains(q.URL.Path, "hashes:search") != f.lists {
			select {
			case <-r.gate:
			case <-q.Context().Done():
			}
		}
		return q.Context().Err()
	})
	raw, err := json.Marshal(childConfig{Endpoint: w.cfg.Settings.Endpoint, Folder: t.TempDir(), Counts: r.counts, Connections: connections})
	testkit.Must(t, err)
	r.child = &child{t: t, config: string(raw)}
	r.child.start()
	t.Cleanup(r.kill)
	if !f.lists {
		testkit.Until(t, "the lists", func() bool { return r.get(context.Background(), searchRequest("evil.example/"), "127.0.0.9") == nil })
	}
	slow.Store(true)
	w.google.ClientCancelled() // what the relay gives up
	return r
}

// pouring are the requests of a flood.
type pouring struct {
	ended atomic.Int64 // with an answer, or a closed connection
	conns sync.Map     // of net.Conn to nothing
	wg    sync.WaitGroup
}

// pour sends all requests at once, each on a connection of its own, and returns when the relay
// has taken or refused all that it will.
func (p *pouring) pour(t *testing.T, f relayFlood, r *flooded, requests int) {
	address := strings.TrimPrefix(r.url, "http://")
	var sent atomic.Int64
	for n := range requests {
		p.wg.Go(func() {
			defer p.ended.Add(1)
			client := n % f.clients
			d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, byte(client>>8), byte(1+client&0xff))}}
			conn, err := d.Dial("tcp", address)
			if err != nil {
				sent.Add(1)
				return
			}
			defer conn.Close()
			p.conns.Store(conn, nil)
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n", f.request(n))
			sent.Add(1)
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	testkit.Until(t, "the requests of the flood", func() bool { return f.drowns || int(sent.Load()) == requests })
	last := int64(-1)
	testkit.Until(t, "those that are refused", func() bool {
		time.Sleep(300 * time.Millisecond)
		now := sent.Load() + p.ended.Load()
		same := now == last
		last = now
		return same
	})
}

func (p *pouring) end() {
	p.conns.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
	p.wg.Wait()
}

// floodOthers is how many requests other clients send during a flood.
const floodOthers = 20

// others sends requests that need no server, each from a client of its own, and returns how
// long the slowest took and how many were served. Before the first lists a client is served if
// its request is held.
func (r *flooded) others(lists bool) (slowest time.Duration, served int) {
	for n := range floodOthers {
		path, patience := listsRequest, 5*time.Second
		switch {
		case lists:
			patience = 200 * time.Millisecond
		case n%2 == 0:
			path = searchRequest("evil.example/")
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		begun := time.Now()
		err := r.get(ctx, path, fmt.Sprintf("127.99.0.%d", n+1))
		if err == nil || lists && ctx.Err() != nil {
			served++
			slowest = max(slowest, time.Since(begun))
		}
		cancel()
	}
	return slowest, served
}

// get asks the relay from an address.
func (r *flooded) get(ctx context.Context, path, from string) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// floodUse is what a process uses.
type floodUse struct {
	mib        float64
	goroutines int
}

func (r *flooded) used() (u floodUse) {
	r.t.Helper()
	_, err := fmt.Sscan(testkit.Body(r.t, "http://"+r.counts), &u.goroutines)
	testkit.Must(r.t, err)
	u.mib = memory(strconv.Itoa(r.Pid()), "VmRSS")
	return u
}

// memory returns a figure of a process in MiB; 0 if the system does not tell.
func memory(pid, name string) (mib float64) {
	status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	_, rest, _ := strings.Cut(string(status), name+":") // proc_pid_status(5), in kB
	_, _ = fmt.Sscan(rest, &mib)
	return mib / 1024
}

// settled waits until the relay has about as many goroutines as before.
func (r *flooded) settled(before floodUse) (after floodUse) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if after = r.used(); after.goroutines <= before.goroutines+10 || time.Now().After(end) {
			return after
		}
	}
}
