package safebrowsing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// bubble is the plugin without sockets, for a bubble of simulated time: the
// server is reached in-process, and the next plugin takes its time to answer.
type bubble struct {
	t       *testing.T
	google  *protocoltest.Server
	plugin  *SafeBrowsing
	release func()
}

func newBubble(t *testing.T, upstream time.Duration, alter func(*SafeBrowsing), listed ...string) *bubble {
	b := &bubble{t: t, google: protocoltest.New(t)}
	var entries [][]byte
	for _, e := range listed {
		hash := sha256.Sum256([]byte(e))
		entries = append(entries, hash[:4])
	}
	b.google.SetMinimumWait("se-4b", 30*time.Minute)
	b.google.Publish("se-4b", entries)
	next := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		time.Sleep(upstream)
		return dns.RcodeSuccess, w.WriteMsg(reply300(r))
	})
	b.plugin = newPlugin(config.Config{
		Block:  config.Block{Zones: plugin.Zones{"."}, Reply: answer.Reply{TTL: time.Minute}, ConfirmTimeout: 500 * time.Millisecond},
		Engine: config.Engine{Endpoint: "http://bubble.example", Lists: "se-4b"}, Online: true,
	}, next)
	alter(b.plugin)
	e, release, err := engine.NewRegistry(engine.Edge{Transport: b.google, FirstContact: func() time.Duration { return 0 }}).Acquire(b.plugin.block.Settings, "")
	testkit.Must(t, err)
	b.plugin.block.Use(&e.Service)
	b.release = release
	synctest.Wait()
	return b
}

// stop ends the plugin, when what outlives its queries has ended.
func (b *bubble) stop() {
	b.plugin.detached.end()
	b.release()
}

// inBubble runs a test in simulated time, on a plugin whose list holds some expressions.
func inBubble(t *testing.T, upstream time.Duration, alter func(*SafeBrowsing), listed []string, test func(t *testing.T, b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, upstream, alter, listed...)
		defer b.stop()
		test(t, b)
	})
}

// isBlocked reports whether the plugin answered instead of the next one, which knows
// every name.
func isBlocked(m *dns.Msg) bool { return m.Rcode == dns.RcodeNameError }

// ask sends a query from an address and returns the answer and how long it took.
func (b *bubble) ask(from, name string) (*dns.Msg, time.Duration) {
	b.t.Helper()
	r := new(dns.Msg).SetQuestion(name, dns.TypeA)
	r.SetEdns0(1232, false)
	ip, zone, _ := strings.Cut(from, "%")
	w := &recorder{ResponseWriter: test.ResponseWriter{RemoteIP: ip, Zone: zone}}
	begun := time.Now()
	rcode, err := b.plugin.ServeDNS(context.Background(), w, r)
	if err != nil || len(w.msgs) != 1 || !plugin.ClientWrite(rcode) {
		b.t.Fatalf("%s: Expected one answer, got rcode %d, %v, %v", name, rcode, err, w.msgs)
	}
	return w.msgs[0], time.Since(begun)
}

func TestServerDownForADayInTheMiddleOfLoad(t *testing.T) {
	const upstream = 5 * time.Millisecond
	var listed []string
	for i := range 40 {
		listed = append(listed, fmt.Sprintf("host%d.example.com/", i))
	}
	inBubble(t, upstream, func(*SafeBrowsing) {}, listed, func(t *testing.T, b *bubble) {
		b.google.JudgeSearchBackoff(true)
		for _, e := range listed[:20] {
			b.google.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for worker := range uint64(4) {
			load.Go(func() {
				chance := rand.New(rand.NewPCG(worker, 0))
				for ctx.Err() == nil {
					time.Sleep(time.Duration(chance.Int64N(int64(8 * time.Second))))
					m, took := b.ask(fmt.Sprintf("192.0.2.%d", worker), fmt.Sprintf("www.host%d.example.com.", chance.IntN(80)))
					if m.Rcode != dns.RcodeSuccess && !isBlocked(m) {
						t.Errorf("Expected no query to fail, got\n%v", m)
					}
					if took > max(config.DefaultConfirmTimeout, upstream) {
						t.Errorf("Expected no query to wait longer than %s, took %s", config.DefaultConfirmTimeout, took)
					}
				}
			})
		}
		time.Sleep(time.Hour)
		if m, _ := b.ask("192.0.2.9", "host1.example.com."); !isBlocked(m) {
			t.Error("Expected threats to be blocked before the server goes down")
		}
		down := time.Now()
		b.google.Break("", 1<<30, protocoltest.Fault{Status: 503, Delay: 50 * time.Millisecond})
		time.Sleep(24 * time.Hour)
		tried := slices.DeleteFunc(b.google.Requests("search"), func(r protocoltest.Request) bool { return r.Time.Before(down) })
		if len(tried) < 24*60/32 { // the referee judges which come too early
			t.Errorf("Expected a search every half hour, got %d", len(tried))
		}
		b.google.Repair()
		time.Sleep(31 * time.Minute)
		for i := range 20 { // whatever was passed in the meantime has expired
			if m, _ := b.ask("192.0.2.9", fmt.Sprintf("a.host%d.example.com.", i)); !isBlocked(m) {
				t.Errorf("Expected host%d to be blocked again, got\n%v", i, m)
			}
		}
		cancel()
		load.Wait()
	})
}

func TestManyQueriesForOneCollidingNameMakeOneSearch(t *testing.T) {
	inBubble(t, 30*time.Millisecond, func(*SafeBrowsing) {}, []string{"shared.example.com/"}, func(t *testing.T, b *bubble) {
		b.google.Break("search", 1, protocoltest.Fault{Delay: 100 * time.Millisecond})
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				_, took := b.ask(fmt.Sprintf("10.0.%d.%d", i/250, i%250), "shared.example.com.")
				if took < 100*time.Millisecond || took > 100*time.Millisecond+1000*time.Millisecond/16 {
					t.Errorf("Expected the time of the search, and at most 1 ms for each 16 queries, took %s", took)
				}
			})
		}
		wg.Wait()
		testkit.Equal(t, "searches", len(b.google.Requests("search")), 1)
	})
}

func TestOneFloodingClientDoesNotSwitchProtectionOffForOthers(t *testing.T) {
	testkit.Long(t)
	limiter := func(s *SafeBrowsing) {
		s.block.Config.Limiter = lookup.PerClient(lookup.LeakyBucket{Rate: config.DefaultRate, Capacity: config.DefaultBurst}.Admit)
	}
	for name, alter := range map[string]func(*SafeBrowsing){
		"answers that may not be kept":     limiter,
		"each name is a search of its own": func(s *SafeBrowsing) { limiter(s); s.block.Settings.Mode = lookup.NoStorage },
	} {
		inBubble(t, 5*time.Millisecond, alter, []string{"colliding.example.org/", "evil.example.com/"}, func(t *testing.T, b *bubble) {
			b.google.AddThreat("evil.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
			if b.plugin.block.Settings.Mode == lookup.Local {
				b.google.SetCacheDuration(-1)
			}
			b.google.Break("search", 1<<30, protocoltest.Fault{Delay: 400 * time.Millisecond})
			begun := time.Now()
			var flood sync.WaitGroup
			for i := range 10_000 {
				flood.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					b.ask("192.0.2.66", fmt.Sprintf("r%d.colliding.example.org.", i))
				})
			}
			time.Sleep(5 * time.Second)
			if m, _ := b.ask("192.0.2.1", "evil.example.com."); !isBlocked(m) {
				t.Errorf("%s: Expected the threat to be blocked for another client, got\n%v", name, m)
			}
			flood.Wait()
			searches := len(b.google.Requests("search"))
			if allowed := config.DefaultBurst + int(time.Since(begun).Seconds()*config.DefaultRate) + 2; searches > allowed {
				t.Errorf("%s: Expected at most %d searches, got %d", name, allowed, searches)
			}
			if searches < 20 {
				t.Errorf("%s: Expected the client's own share of searches, got %d", name, searches)
			}
		})
	}
}

func TestModes(t *testing.T) {
	tests := []struct {
		mode     lookup.Mode
		name     string
		blocked  bool
		searches int    // for this name
		why      string // before the server was asked
	}{
		{lookup.Local, "unlisted.example.com.", false, 0, "passes"},
		{lookup.Local, "listed.example.com.", true, 1, "suspected"},
		{lookup.RealTime, "unlisted.example.com.", true, 1, "unknown"},
		{lookup.RealTime, "www.listed.example.com.", true, 1, "suspected"},
		{lookup.RealTime, "harmless.example.com.", false, 1, "unknown"},
		{lookup.RealTime, "popular.example.com.", false, 0, "passes"}, // in the global cache
		{lookup.RealTime, "listed.popular.example.com.", true, 1, "suspected"},
		{lookup.RealTime, "printer.local.", false, 0, "passes"},
		{lookup.NoStorage, "unlisted.example.com.", true, 1, "unknown"},
		{lookup.NoStorage, "popular.example.com.", false, 1, "unknown"},
		{lookup.NoStorage, "printer.local.", false, 0, "passes"},
		{lookup.NoStorage, "router.", false, 0, "passes"},
	}
	for _, tc := range tests {
		inMode := func(s *SafeBrowsing) {
			s.block.Settings.Mode, s.block.Config.DB = tc.mode, tc.mode.String() // so that no other case has blocked the name lately
		}
		inBubble(t, time.Millisecond, inMode, []string{"listed.example.com/", "listed.popular.example.com/"}, func(t *testing.T, b *bubble) {
			popular := sha256.Sum256([]byte("popular.example.com/"))
			popularOnes := [][]byte{popular[:]}
			for i := range 99 { // with fewer the mode is local
				sum := sha256.Sum256(fmt.Appendf(nil, "popular%d.example.com/", i))
				popularOnes = append(popularOnes, sum[:])
			}
			b.google.Publish(protocol.GlobalCache, popularOnes)
			for _, e := range []string{"listed.example.com/", "listed.popular.example.com/", "unlisted.example.com/"} {
				b.google.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
			}
			time.Sleep(48 * time.Hour) // the global cache was not there at first contact
			if a := b.plugin.block.Why(lookup.FromQname(tc.name)); a.Verdict != tc.why || (a.List != "") != (tc.why == status.VerdictSuspected) {
				t.Errorf("Mode %d, %s: Expected %s, got %+v", tc.mode, tc.name, tc.why, a)
			}
			m, _ := b.ask("192.0.2.1", tc.name)
			testkit.Equal(t, fmt.Sprintf("Mode %d, %s is blocked", tc.mode, tc.name), isBlocked(m), tc.blocked)
			testkit.Equal(t, fmt.Sprintf("Mode %d, searches for %s", tc.mode, tc.name), len(b.google.Requests("search")), tc.searches)
			if tc.mode == lookup.NoStorage && len(b.google.Requests("update")) > 0 {
				t.Error("Expected no list to be fetched in mode nostorage")
			}
		})
	}
}

// A server that is down or slow puts no host under suspicion where no list knows it.
func TestServerInTroubleFailsNoHostWithoutLists(t *testing.T) {
	for name, tc := range map[string]struct {
		fault protocoltest.Fault
		ttl   uint32
		took  time.Duration
	}{
		"down": {protocoltest.Fault{Status: 503}, 300, time.Millisecond},
		"slow": {protocoltest.Fault{Delay: 3 * time.Second}, 5, config.DefaultConfirmTimeout},
	} {
		failing := func(s *SafeBrowsing) { s.block.Settings.Mode, s.block.Config.UnsureFails = lookup.NoStorage, true }
		inBubble(t, time.Millisecond, failing, nil, func(t *testing.T, b *bubble) {
			b.google.Break("search", 1<<30, tc.fault)
			before := block.ThisProcess().Report().Today.Threats
			for i := range 10 {
				m, took := b.ask("192.0.2.1", fmt.Sprintf("host%d.example.com.", i))
				if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 || m.Answer[0].Header().Ttl != tc.ttl || took != tc.took {
					t.Errorf("%s: Expected an answer with a TTL of %d after %s, took %s and got\n%v", name, tc.ttl, tc.took, took, m)
				}
				time.Sleep(5 * time.Second)
			}
			testkit.Equal(t, name+": suspected names that passed", block.ThisProcess().Report().Today.Threats, before)
		})
	}
}
