package fleet

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	benchEntries = 10_000_000 // in both lists together
	benchHot     = 450        // prefixes that are asked for again and again
	benchChanges = 4000
	benchPoll    = 32 * time.Second // a client asks for lists, the mean of the relay's minimum waits
	benchTime    = 90 * time.Second
	benchNew     = 5 // clients that come with nothing meanwhile, each for 13 MB of full lists
)

// BenchmarkFleet measures a relay, a process on one core, with lists of ten million entries and many clients, each with a connection of
// its own that stays: of the prefixes that they ask for, nine in ten are cached. The lists change once, each client gets the change,
// and some new ones get full lists. The figures are the relay's own, but for load-CPU-s, which is this process's own: it is the clients
// and the server. Peak memory is from its start on. Run it with -benchtime 1x, on a machine that does nothing else.
func BenchmarkFleet(b *testing.B) {
	entries := benchEntriesOf(1)
	for _, size := range []struct{ clients, searches int }{{500, 50}, {5000, 1000}} {
		b.Run(fmt.Sprintf("clients=%d/searches=%d", size.clients, size.searches), func(b *testing.B) { benchFleet(b, entries, size.clients, size.searches) })
	}
}

// benchFleet measures a relay with a number of clients that together make a given number of searches a second.
func benchFleet(b *testing.B, entries [][]byte, clients, searches int) {
	g := judge(b, nil)
	for _, list := range []string{"se-4b", "mw-4b"} {
		g.SetMinimumWait(list, time.Second)
	}
	publishBoth(g, entries)
	// More than half of the connections are never open: then one address may have as many as it likes.
	r := newRelay(b, g.url, "-connections", fmt.Sprint(4*clients))
	r.env = []string{"GOMAXPROCS=1"}
	fetch(b, r.db, r.upstream)
	r.start()
	for b.Loop() {
		l := newLoad(b, r, entries, clients, searches)
		publishBoth(g, changed(entries))
		for _, list := range []string{"se-4b", "mw-4b"} {
			g.SetMinimumWait(list, minimumWait)
		}
		cpu, load := testkit.CPUSeconds(b, r.Pid()), testkit.CPUSeconds(b, os.Getpid())
		begun := time.Now()
		l.run(benchTime)
		b.ReportMetric(l.changed.Sub(begun).Seconds(), "s-all-changed")
		b.ReportMetric(testkit.CPUSeconds(b, r.Pid())-cpu, "CPU-s")
		b.ReportMetric(testkit.CPUSeconds(b, os.Getpid())-load, "load-CPU-s")
		b.ReportMetric(float64(openFiles(b, r.Pid())), "open-files")
		l.report(b)
	}
	b.ReportMetric(mebibytes(b, r.Pid(), "VmHWM"), "MiB-peak")
	b.ReportMetric(mebibytes(b, r.Pid(), "VmRSS"), "MiB-resident")
	b.ReportMetric(0, "ns/op")
}

// benchEntriesOf returns different prefixes from a seed, at random in one slice.
func benchEntriesOf(seed uint64) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	values := make([]uint32, benchEntries)
	for i := range values {
		values[i] = rng.Uint32()
	}
	slices.Sort(values)
	values = slices.Compact(values)
	rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	raw, entries := make([]byte, 0, 4*len(values)), make([][]byte, len(values))
	for i, v := range values {
		raw = binary.BigEndian.AppendUint32(raw, v)
		entries[i] = raw[4*i : 4*i+4]
	}
	return entries
}

// changed returns entries with some replaced, in both lists.
func changed(entries [][]byte) [][]byte {
	next := slices.Clone(entries)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range benchChanges {
		fresh := binary.BigEndian.AppendUint32(nil, rng.Uint32())
		next[len(next)/2+i], next[len(next)-1-i] = fresh, fresh
	}
	return next
}

// publishBoth publishes half of the entries in each list.
func publishBoth(g *judged, entries [][]byte) {
	g.Publish("se-4b", entries[:len(entries)/2])
	g.Publish("mw-4b", entries[len(entries)/2:])
}

// load is what the clients of a relay do.
type load struct {
	b        *testing.B
	r        *relay
	clients  []*lightClient
	searches int // a second
	hot      [][]byte
	cold     [][]byte

	mu       sync.Mutex
	cached   []time.Duration
	upstream []time.Duration
	lists    []time.Duration
	partial  int       // clients that have got the change
	changed  time.Time // the last of them
}

// lightClient is a client that keeps the versions of lists but not the lists: many times ten
// million entries would take the memory that is to be measured.
type lightClient struct {
	http     *http.Client
	versions [][]byte
}

// newLoad makes the clients and asks the relay for the hot prefixes once. All clients hold
// the first lists: one has fetched them for all.
func newLoad(b *testing.B, r *relay, entries [][]byte, clients, searches int) *load {
	l := &load{b: b, r: r, searches: searches, hot: entries[:benchHot], cold: entries[benchHot : len(entries)/2]}
	for range clients {
		l.clients = append(l.clients, l.newClient())
	}
	l.poll(l.clients[0])
	for _, c := range l.clients {
		c.versions = l.clients[0].versions
	}
	for i, p := range l.hot {
		l.search(l.clients[i%len(l.clients)], p)
	}
	return l
}

func (l *load) newClient() *lightClient {
	transport := new(http.Transport)
	l.b.Cleanup(transport.CloseIdleConnections)
	return &lightClient{http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// run lets the clients ask for a time.
func (l *load) run(d time.Duration) {
	l.b.Helper()
	var wg sync.WaitGroup
	begun := time.Now()
	end := begun.Add(d)
	for i, c := range l.clients {
		wg.Go(func() {
			time.Sleep(benchPoll * time.Duration(i) / time.Duration(len(l.clients)))
			for ; time.Now().Before(end); time.Sleep(benchPoll) {
				took, partial := l.poll(c)
				l.note(&l.lists, took, partial)
			}
		})
	}
	for i := range benchNew {
		wg.Go(func() {
			time.Sleep(d * time.Duration(i+1) / (benchNew + 1))
			l.poll(l.newClient())
		})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for n := range int(d.Seconds()) * l.searches {
		time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / time.Duration(l.searches))))
		c, prefix, times := l.clients[rng.IntN(len(l.clients))], l.hot[rng.IntN(len(l.hot))], &l.cached
		if n%10 == 0 {
			prefix, times = l.cold[n], &l.upstream
		}
		wg.Go(func() { l.note(times, l.search(c, prefix), false) })
	}
	if late := time.Since(end); late > time.Second {
		l.b.Errorf("the load is %s late: this machine is too slow for it", late)
	}
	wg.Wait()
}

func (l *load) note(times *[]time.Duration, took time.Duration, partial bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*times = append(*times, took)
	if partial {
		l.partial++
		l.changed = time.Now()
	}
}

func (l *load) search(c *lightClient, prefix []byte) time.Duration {
	took, _ := l.get(c, "/v5/hashes:search", url.Values{"hashPrefixes": {base64.URLEncoding.EncodeToString(prefix)}})
	return took
}

// poll asks for both lists. It reports whether an update was partial and changed something.
func (l *load) poll(c *lightClient) (took time.Duration, partial bool) {
	query := url.Values{"names": {"se-4b", "mw-4b"}}
	for _, v := range c.versions {
		query.Add("version", base64.URLEncoding.EncodeToString(v))
	}
	took, body := l.get(c, "/v5/hashLists:batchGet", query)
	answer := new(sbv5.BatchGetHashListsResponse)
	if err := proto.Unmarshal(body, answer); err != nil {
		l.b.Error(err)
	}
	var versions [][]byte
	for _, list := range answer.HashLists {
		versions = append(versions, list.Version)
		partial = partial || list.PartialUpdate && len(list.Sha256Checksum) > 0
	}
	c.versions = versions
	return took, partial
}

func (l *load) get(c *lightClient, path string, query url.Values) (time.Duration, []byte) {
	query.Set("alt", "proto")
	began := time.Now()
	answer, err := c.http.Get(l.r.url + path + "?" + query.Encode())
	if err != nil {
		l.b.Error(err)
		return 0, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		l.b.Errorf("%s: status %d, %v", path, answer.StatusCode, err)
	}
	return time.Since(began), body
}

func (l *load) report(b *testing.B) {
	for name, times := range map[string][]time.Duration{"cached": l.cached, "upstream": l.upstream, "lists": l.lists} {
		slices.Sort(times)
		b.ReportMetric(milliseconds(times[len(times)/2]), "ms-"+name+"-p50")
		b.ReportMetric(milliseconds(times[len(times)*99/100]), "ms-"+name+"-p99")
		b.ReportMetric(milliseconds(times[len(times)-1]), "ms-"+name+"-max")
	}
	b.ReportMetric(float64(len(l.cached)+len(l.upstream))/benchTime.Seconds(), "searches/s")
	if l.partial != len(l.clients) {
		b.Errorf("%d of %d clients have got the change", l.partial, len(l.clients))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// mebibytes returns a size from the status of a process, such as VmHWM (proc_pid_status(5)).
// It skips the test on systems that do not tell.
func mebibytes(t testing.TB, pid int, name string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return kib / 1024
}

func openFiles(t testing.TB, pid int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}
