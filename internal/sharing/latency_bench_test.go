package sharing

import (
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// BenchmarkAddedLatency prints what Redis adds to a request about a prefix that is not in the
// cache: its admission and its search, at a server that answers in no time. Requests come a
// millisecond after each other. Run it with -benchtime 5000x.
func BenchmarkAddedLatency(b *testing.B) {
	for _, state := range []struct {
		name    string
		url     func(*testkit.Redis) string
		breakIt func(*testkit.Redis)
		without bool
	}{
		{name: "none", without: true},
		{name: "alive"},
		{name: "dead", breakIt: (*testkit.Redis).Kill},
		{name: "hangs", breakIt: (*testkit.Redis).Stop},
		{name: "50ms late", url: func(s *testkit.Redis) string { return "redis://" + late(b, s.Addr, 50*time.Millisecond) }},
	} {
		b.Run(state.name, func(b *testing.B) {
			var searcher lookup.Searcher = &server{answer: lookup.Answer{TTL: time.Minute}}
			own := lookup.AdmitBy(lookup.PerClient(lookup.LeakyBucket{Rate: 1e6, Capacity: 1e6}.Admit), walled(1e6), addr("192.0.2.1"))
			admit := own.All()
			if !state.without {
				s := testkit.StartRedis(b)
				url := s.URL()
				if state.url != nil {
					url = state.url(s)
				}
				c, w := open(b, url, func(c *Config) { c.Deadline = 0 }) // the relay's
				w.wait(b, 1)
				searcher = NewAnswers(c, searcher)
				admit = NewLimits(c, Rule{Bucket: lookup.LeakyBucket{Rate: 1e6, Capacity: 1e6}}, walled(1e6)).Admit(addr("192.0.2.1"))
				if state.breakIt != nil {
					state.breakIt(s)
				}
			}
			report(b, func(i int) {
				if _, _, err := admit(1); err != nil {
					b.Fatal(err)
				}
				if _, err := searcher.Search(b.Context(), []lookup.Prefix{lookup.Prefix("p" + strconv.Itoa(i))}); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// report calls a function each millisecond and reports how long the calls took.
func report(b *testing.B, call func(i int)) {
	took := make([]time.Duration, 0, b.N)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range b.N {
		<-tick.C
		begin := time.Now()
		call(i)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	for _, p := range []struct {
		name string
		part float64
	}{{"p50-µs", .5}, {"p99-µs", .99}, {"max-µs", 1}} {
		b.ReportMetric(float64(took[int(p.part*float64(len(took)-1))].Nanoseconds())/1e3, p.name)
	}
}

// late returns the address of a proxy whose answers are late.
func late(b *testing.B, addr string, by time.Duration) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(b, err)
	b.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				client.Close()
				continue
			}
			go func() { // both end with a connection
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			go func() {
				defer client.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := server.Read(buf)
					if err != nil {
						return
					}
					time.Sleep(by)
					if _, err := client.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
