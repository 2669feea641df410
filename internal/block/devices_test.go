package block

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// watched is a server block that names who asks, in the log and on the page.
func watched() *Block {
	return New(config.Config{Block: config.Block{Zones: []string{"."}, LogBlocked: true, StatusNames: true}})
}

func everyZone(string) bool { return true }

func clientAt(n int) net.Addr {
	return &net.UDPAddr{IP: net.IPv4(10, byte(n>>16), byte(n>>8), byte(n)), Port: 53053}
}

// A device that asks for nothing but a resolver while it rests is reported in its first night, and in no other.
func TestADeviceThatRestsIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := alone(t).devices, watched()
		var nights []int
		for minute := range 10 * minutesOfDay {
			if minute%minutesOfDay < 6*60 {
				b.Heard(clientAt(1), SignOf("film.example."))
			}
			if minute%(20+minute/minutesOfDay) == 0 {
				b.Heard(clientAt(1), SignOf("dns.google."))
			}
			time.Sleep(time.Minute)
			if left, _ := d.sweep(everyZone, time.Now()); len(left) > 0 {
				nights = append(nights, minute/minutesOfDay)
			}
		}
		testkit.Equal(t, "Reported in the nights", nights, []int{0})
	})
}

func TestWhenAClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name     string
			ordinary int           // minutes with ordinary names at first
			signs    int           // minutes with queries for a resolver after them
			over     time.Duration // in which these were
			then     time.Duration // without any query
			left     bool
		}{
			{"it asks for a resolver for hours", 40, 4, 3 * time.Hour, 0, true},
			{"it has not asked for long enough", 40, 4, 2 * time.Hour, 10 * time.Hour, false}, // it may be switched off
			{"too few queries", 40, 2, 5 * time.Hour, 0, false},
			{"it used to ask for little", 20, 5, 5 * time.Hour, 0, false},
			{"it used to ask for little, and asks no more at all", 20, 12, 7 * time.Hour, 0, true},
			{"it had left before the start", 0, 12, 7 * time.Hour, 0, true},
			{"it had left, too few queries", 0, 8, 7 * time.Hour, 0, false},
			{"it asks for no resolver", 40, 0, 0, 20 * time.Hour, false},
		} {
			d, b := alone(t).devices, watched()
			left := 0
			sleep := func(length time.Duration) {
				for range int(length / time.Minute) {
					time.Sleep(time.Minute)
					lines, _ := d.sweep(everyZone, time.Now())
					left += len(lines)
				}
			}
			for range tc.ordinary {
				b.Heard(clientAt(1), SignOf("www.example.com."))
				sleep(time.Minute)
			}
			for range tc.signs {
				sleep(tc.over / time.Duration(max(1, tc.signs-1)))
				b.Heard(clientAt(1), SignOf("dns.google."))
			}
			sleep(tc.then + time.Minute)
			want := map[bool]int{true: 1}[tc.left]
			testkit.Equal(t, tc.name+": reported, and counted", []int{left, d.counts().Left}, []int{want, want})
		}
	})
}

// The log, the report, the page, explain and the metric say the same, and tell an address only where names are logged.
func TestAllSayTheSameAboutDevices(t *testing.T) {
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		year, month, day := time.Now().Date()
		time.Sleep(time.Until(time.Date(year, month, day+1, 0, 0, 0, 0, time.Local))) // they count the day
		alone(t)
		named, silent := watched(), New(config.Config{Block: config.Block{Zones: []string{"silent.example."}}})
		for _, b := range []*Block{named, silent} {
			process.add(b)
			defer b.End()
		}
		want := func(when string, left, also, told int) {
			t.Helper()
			r, shown := process.Report().Devices, (page{process}).Report().Devices
			got := []int{r.Left, r.Also, len(r.Told), shown.Left, len(shown.Told)}
			testkit.Equal(t, when+": left, also, told, and on the page", got, []int{left, also, told, left, told})
			for state, n := range map[string]int{"left": left, "also": also} {
				testkit.Equal(t, when+": the metric of "+state, testkit.Metric(t, "devices", "state", state), float64(n))
			}
			testkit.WantParts(t, named.Why(lookup.FromQname("x.dns.google.")).Note, "a public encrypted resolver: "+r.InWords())
			testkit.WantNone(t, named.Why(lookup.FromQname("www.google.com.")).Note, "resolver")
			if when != "both are back" {
				testkit.Equal(t, when+": lines", len(lines.About("it may not be protected")), left)
			}
		}
		use := func(minutes int, names ...string) {
			for n := range minutes {
				for _, name := range names {
					if name != "dns.google." || n%5 == 0 {
						named.Heard(clientAt(1), SignOf(name))
						silent.Heard(clientAt(2), SignOf(name))
					}
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(2 * watchInterval)
		}
		want("at first", 0, 0, 0)
		use(40, "www.example.com.")
		want("ordinary names", 0, 0, 0)
		use(40, "www.example.com.", "dns.google.")
		want("a resolver, too", 0, 2, 1)
		use(200, "dns.google.")
		want("nothing else", 2, 0, 1)
		use(200, "dns.google.", "_dns.resolver.arpa.")
		want("nothing else for long", 2, 0, 1)
		use(2, "www.example.com.")
		want("both are back", 0, 2, 1)
	})
	left, back := lines.About("it may not be protected"), lines.About("asks for other names again")
	testkit.Equal(t, "lines about who left, and who is back", []int{len(left), len(back)}, []int{2, 2})
	testkit.WantParts(t, lines.Only(t, "10.0.0.1 asked for dns.google "), "[WARNING]", " times today and nothing else since ")
	testkit.WantParts(t, strings.Join(left, ""), "A device asked for dns.google ")
	testkit.WantParts(t, strings.Join(back, ""), "[INFO]")
	testkit.WantNone(t, lines.String(), "10.0.0.2") // a client of a server block without log
}

// A reload may take the words log and names from a block. Then no address is told or kept, or none is on the page.
func TestNoAddressIsKeptWithoutLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, other := watched(), watched()
		other.Config.Zones = []string{"other.example."}
		alone(t, b, other)
		want := func(when string, told, onPage int) {
			t.Helper()
			for range 2 {
				report, shown := process.Report().Devices, (page{process}).Report().Devices
				if report.Also != 1 || len(report.Told) != told || len(shown.Told) != onPage || told == 1 && report.Told[0].Client != "10.0.0.1" {
					t.Errorf("%s: %+v, the page has %+v", when, report, shown)
				}
				time.Sleep(time.Minute)
				process.sweepDevices()
			}
			for _, w := range process.devices.wanderers {
				testkit.Equal(t, fmt.Sprintf("%s: kept %v", when, w.client), w.client.IsValid(), told == 1)
			}
		}
		ask := func(b *Block) { b.Heard(clientAt(1), SignOf("dns.google.")) }
		ask(b)
		want("with both", 1, 1)
		b.Config.StatusNames = false
		want("without names", 1, 0)
		b.Config.LogBlocked = false
		want("without log", 0, 0)
		ask(b)
		want("asked again", 0, 0)
		ask(other)
		want("asked another server block", 1, 1)
		ask(b)
		want("asked both", 1, 1)
	})
}

// A router asks for names before its clock is set.
func TestADeviceIsToldByTheClockOfNow(t *testing.T) {
	now := time.Now()
	begun := now.Add(-7 * time.Hour)
	behind := func(at time.Time) time.Time { return testkit.ClockSet(at, -40*365*24*time.Hour) }
	d := (&wanderer{since: behind(begun), last: behind(begun.Add(time.Hour))}).device(now)
	begun = begun.Round(time.Second)
	testkit.Equal(t, "since, and the last", []time.Duration{d.Since.Sub(begun), d.Last.Sub(begun)}, []time.Duration{0, time.Hour})
}

// The numbers of the page count the day.
func TestDevicesOfYesterdayThatStayAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := alone(t).devices, watched()
		b.Heard(clientAt(1), SignOf("dns.google."))
		testkit.Equal(t, "left, also", []int{d.counts().Left, d.counts().Also}, []int{0, 1})
		time.Sleep(25 * time.Hour)
		d.sweep(everyZone, time.Now())
		r := d.report(everyZone, time.Now())
		testkit.Equal(t, "a day later", []any{r.Any(), len(r.Told), len(d.wanderers)}, []any{false, 0, 0})
	})
}

// A query may be noted after a sweep that began later.
func TestAQueryThatWaitsForASweepIsOfNow(t *testing.T) {
	d := newDevices()
	key := d.clients.keyOf(net.IPv4(192, 0, 2, 7))
	d.clients.ordinary(key)
	d.sweep(everyZone, d.began.Add(time.Minute))
	now := d.began.Add(time.Minute - time.Millisecond)
	d.wanders(key, netip.Addr{}, "", false, "dns.google", now)
	testkit.Equal(t, "since", d.wanderers[key].since.Sub(now), 0)
	d.sweep(everyZone, now)
	testkit.Equal(t, "a sweep that began earlier was of minute", d.swept, 2)
}

// A flood of made-up addresses takes the memory that there is for it, and those who ask each day stay known.
func TestAFloodOfClientsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := alone(t).devices, watched()
		const regulars = 500
		ask := func(name string) {
			for i := range regulars {
				b.Heard(clientAt(i), SignOf(name))
			}
		}
		for range 2 * regular {
			ask("www.example.com.")
			time.Sleep(time.Minute)
			d.sweep(everyZone, time.Now())
		}
		for n := range 5 {
			for i := range 100_000 {
				b.Heard(clientAt(1_000_000+n*100_000+i), SignOf("www.example.com."))
				b.Heard(clientAt(1_000_000+n*100_000+i), SignOf("dns.google."))
			}
			ask("dns.google.")
			time.Sleep(time.Minute)
			d.sweep(everyZone, time.Now())
		}
		testkit.Between(t, "slots", len(d.clients.table.Load().slots), regulars, mostSlots)
		testkit.Between(t, "wanderers", len(d.wanderers), regulars, maxClients)
		testkit.Between(t, "regular clients that are known", d.known(regulars, regular), regulars*95/100, regulars)
		for range 50 { // those that leave are reported still
			time.Sleep(5 * time.Minute)
			ask("dns.google.")
			d.sweep(everyZone, time.Now())
		}
		testkit.Between(t, "clients that have left and are counted", d.counts().Left, regulars*90/100, regulars)
	})
}

// known returns how many of the first clients are known, with as many active minutes at least.
func (d *devices) known(clients int, active uint32) (n int) {
	for i := range clients {
		if s := d.clients.table.Load().find(d.clients.keyOf(ipOf(clientAt(i)))); s != nil && s.active >= active {
			n++
		}
	}
	return n
}

// Queries of many clients at once, and sweeps: each client is seen in each minute.
func TestManyAskAtOnce(t *testing.T) {
	c := newClients()
	const many, sweeps = 200, 10
	seen := make(map[uint64]uint32)
	asking := func(queries, clients int) *sync.WaitGroup {
		all := new(sync.WaitGroup)
		for part := range 4 {
			all.Go(func() {
				for n := range queries {
					c.ordinary(c.keyOf(ipOf(clientAt((n + part) % clients))))
				}
			})
		}
		return all
	}
	for minute := range uint32(sweeps) {
		asking(4*many, many).Wait()
		c.sweep(minute+1, false, func(key uint64, active uint32) { seen[key] = active })
	}
	all := len(seen)
	maps.DeleteFunc(seen, func(_ uint64, active uint32) bool { return active != sweeps })
	testkit.Equal(t, "clients that were seen, and those in each minute", []int{all, len(seen)}, []int{many, many})
	racing := asking(20_000, 5_000) // while sweeps run, and the table grows
	for minute := range uint32(20) {
		c.sweep(sweeps+minute+1, minute == 5, func(uint64, uint32) {})
	}
	racing.Wait()
}

// What 10,000 clients take: all ask for ordinary names, and then all for a resolver, too.
func TestTenThousandClientsTakeLittleMemory(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const many = 10_000
	began := time.Now()
	before := heap()
	d, b := alone(t).devices, watched()
	ask := func(name string) {
		for i := range many {
			b.Heard(clientAt(i), SignOf(name))
		}
	}
	for n := range 6 { // it grows once a minute
		ask("www.example.com.")
		d.sweep(everyZone, began.Add(time.Duration(n+1)*time.Minute))
	}
	known := d.known(many, 0)
	ordinary := heap() - before
	ask("dns.google.")
	all := heap() - before
	t.Logf("%d clients, %d of them known: %d KiB, %d bytes each; if all ask for a resolver: %d KiB, %d bytes each", many, known, ordinary>>10, ordinary/many, all>>10, all/many)
	testkit.Between(t, "clients that are known", known, many*99/100, many)
	testkit.Equal(t, "clients that ask for a resolver", len(d.wanderers), many)
	testkit.Between(t, "bytes", ordinary, math.MinInt, 1<<20)
	testkit.Between(t, "bytes if all ask for a resolver", all, math.MinInt, 8<<20)
	runtime.KeepAlive(d)
}

// Other addresses than UDP's and TCP's are read, and no address does no harm.
func TestClientsAreToldByTheirAddress(t *testing.T) {
	pipe := func(name string) net.Addr { return &net.UnixAddr{Name: name} }
	c := newClients()
	four := c.keyOf(ipOf(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 1}))
	for _, same := range []net.Addr{
		&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, pipe("192.0.2.1:3"), pipe("[::ffff:192.0.2.1]:3"),
	} {
		testkit.Equal(t, same, c.keyOf(ipOf(same)), four)
	}
	for _, other := range []net.Addr{&net.UDPAddr{IP: net.IPv4(192, 0, 2, 2)}, &net.UDPAddr{IP: net.ParseIP("2001:db8::1")}, pipe("[2001:db8::1]:3")} {
		got := c.keyOf(ipOf(other))
		testkit.Equal(t, fmt.Sprint(other, " is taken for the first client, or for none"), []bool{got == four, got == 0}, []bool{false, false})
	}
	for _, none := range []net.Addr{nil, pipe("pipe"), &net.UDPAddr{}} {
		testkit.Equal(t, none, c.keyOf(ipOf(none)), 0)
		watched().Heard(none, SignOf("dns.google."))
	}
}

func BenchmarkHeard(b *testing.B) {
	block := watched()
	for kind, qname := range map[string]string{"ordinary": "www.static.example.com.", "likeness": "mail.google.com.", "resolver": "dns.google."} {
		b.Run(kind, func(b *testing.B) {
			alone(b)
			from := clientAt(1)
			b.ReportAllocs()
			for b.Loop() {
				block.Heard(from, SignOf(qname))
			}
		})
	}
}

// BenchmarkSweep is what happens once a minute, with 10,000 clients that have all asked.
func BenchmarkSweep(b *testing.B) {
	d, block := alone(b).devices, watched()
	for n := 1; b.Loop(); n++ {
		b.StopTimer()
		for i := range 10_000 {
			block.Heard(clientAt(i), SignOf("www.example.com."))
		}
		b.StartTimer()
		d.sweep(everyZone, d.began.Add(time.Duration(n)*time.Minute))
	}
}

// household is a day of devices. It has the shape that K. Schomp, M. Rabinovich and M. Allman found in homes
// ("Towards a Model of DNS Client Behavior", PAM 2016): users' devices ask for 80 % of their names in clusters
// of 12 in the mean, other devices for 65 % in clusters of 4.3, and clusters have sizes of a wide range.
type household struct {
	*rand.Rand
	block   *Block
	clients []*homeDevice
	queries int
}

// homeDevice is a device of a household.
type homeDevice struct {
	kind      string
	size      float64 // names of a cluster, in the mean
	clustered float64 // part of names in clusters
	busy      float64 // clusters an hour, while it is used
	idle      float64 // the same at other times
	from, to  float64 // hours of the day in which it is used
	resolver  string  // that it looks up as well; "": none
	often     float64 // part of clusters that begin with that
	alone     float64 // times an hour that it looks it up without a cluster, while it is used
	left      string  // the resolver that it uses; "": it asks us
}

// newHousehold has ten devices. Six of them look up a resolver now and then, and stay.
func newHousehold(seed uint64, b *Block) *household {
	user := func(kind string, busy, from, to float64, resolver string, often float64) *homeDevice {
		return &homeDevice{kind, 12, 0.80, busy, busy / 40, from, to, resolver, often, 1, ""}
	}
	other := func(kind string, busy, idle float64, resolver string, often, alone float64) *homeDevice {
		return &homeDevice{kind, 4.3, 0.65, busy, idle, 0, 24, resolver, often, alone, ""}
	}
	return &household{Rand: rand.New(rand.NewPCG(seed, 30)), block: b, clients: []*homeDevice{
		user("phone", 30, 6.5, 23, "", 0), user("laptop", 60, 8, 18, "dns.google", 0.05),
		user("phone", 20, 7, 22.5, "cloudflare-dns.com", 0.1), user("tablet", 25, 16, 21, "", 0),
		user("desktop", 50, 19, 23.5, "mozilla.cloudflare-dns.com", 0.02), user("phone", 25, 6, 22, "dns.google", 0.02),
		other("television", 20, 2, "dns.google", 0.5, 0), other("speaker", 4, 4, "dns.google", 0.3, 6),
		other("camera", 6, 6, "", 0, 0), other("printer", 0.5, 0.2, "", 0, 0),
	}}
}

// minute lets the devices ask as in one minute of a day.
func (h *household) minute(now time.Time) {
	hour := float64(now.UTC().Hour()) + float64(now.Minute())/60
	for i, c := range h.clients {
		rate := c.idle
		if hour >= c.from && hour < c.to {
			rate = c.busy
		}
		if c.left != "" {
			if h.Float64() < rate/8/60 { // each time that it joins the network, or its answer has expired
				h.ask(i, c.left, 2)
				h.ask(i, "connectivitycheck.gstatic.com", 2)
				h.ask(i, "www.google.com", 2)
			}
			continue
		}
		if c.resolver != "" && rate == c.busy && h.Float64() < c.alone/60 {
			h.ask(i, c.resolver, 2)
		}
		clusters := h.poisson(rate / 60)
		for range clusters {
			if c.resolver != "" && h.Float64() < c.often {
				h.ask(i, c.resolver, 2)
			}
			h.ordinary(i, 1+int(h.ExpFloat64()*(c.size-1)))
		}
		h.ordinary(i, h.poisson(rate/60*c.size*(1-c.clustered)/c.clustered))
	}
}

func (h *household) poisson(mean float64) (n int) {
	for p := h.Float64(); p > math.Exp(-mean); p *= h.Float64() {
		n++
	}
	return n
}

func (h *household) ordinary(client, n int) {
	for range n {
		h.ask(client, fmt.Sprintf("h%d.site%d.example", h.IntN(20), h.IntN(2000)), 1)
	}
}

func (h *household) ask(client int, name string, queries int) {
	h.queries += queries
	for range queries {
		h.block.Heard(clientAt(client), SignOf(name+"."))
	}
}

// Of ten devices two leave, at different hours of the second day: these are reported, and nobody else.
func TestDevicesThatLeaveAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := alone(t).devices
		h := newHousehold(2016, watched())
		begin := time.Now()
		leaves := map[int]time.Duration{0: 34*time.Hour + 4*time.Minute, 1: 37*time.Hour + 30*time.Minute}
		returns := 45 * time.Hour // of the first one
		reported, returned := make(map[int]time.Duration), 0
		for range 48 * 60 {
			at := time.Since(begin)
			for i, when := range leaves {
				if at == when {
					h.clients[i].left = []string{"dns.google", "abc123.dns.nextdns.io"}[i]
				}
			}
			if at == returns {
				h.clients[0].left = ""
			}
			h.minute(time.Now())
			time.Sleep(time.Minute)
			left, back := d.sweep(everyZone, time.Now())
			for _, line := range append(left, back...) {
				t.Logf("%s %s", time.Now().UTC().Format("Mon 15:04"), line)
			}
			for i := range h.clients {
				who := clientAt(i).(*net.UDPAddr).IP.String()
				if slices.ContainsFunc(left, func(line string) bool { return strings.HasPrefix(line, who+" asked for ") }) {
					reported[i] = time.Since(begin)
				}
			}
			if returned += len(back); returned > 0 && at < returns {
				t.Errorf("%v after the start: %q", at, back)
			}
		}
		testkit.Equal(t, "clients that came back", returned, 1)
		for i, c := range h.clients {
			after := reported[i] - leaves[i]
			if _, leaves := leaves[i]; leaves && (after < regularQuiet || after > regularQuiet+2*time.Hour) {
				t.Errorf("The %s %d left, and was reported after %v", c.kind, i, after)
			} else if !leaves && reported[i] != 0 {
				t.Errorf("The %s %d stayed, and was reported", c.kind, i)
			}
		}
		r := d.report(everyZone, time.Now())
		if len(r.Told) == 0 {
			t.Fatalf("%+v", r)
		}
		told := r.Told[0]
		testkit.Equal(t, "told", []any{r.Left, told.Client, told.Resolver, told.Left}, []any{1, "10.0.0.1", "dns.nextdns.io", true})
		testkit.Between(t, "told, after it left", told.Since.Sub(begin)-leaves[1], -10*time.Minute, time.Minute)
	})
}

// Whatever the seed: devices that stay are not reported, though six of ten look up resolvers, too.
func TestNoOrdinaryDeviceIsReported(t *testing.T) {
	seeds := map[bool]int{true: 2, false: 20}[testing.Short()]
	first := rand.Uint64()
	queries := 0
	for n := range seeds {
		synctest.Test(t, func(t *testing.T) {
			d := alone(t).devices
			h := newHousehold(first+uint64(n), watched())
			wander := 0
			for range 48 * 60 {
				h.minute(time.Now())
				time.Sleep(time.Minute)
				if left, _ := d.sweep(everyZone, time.Now()); len(left) > 0 {
					t.Fatalf("seed %d: %q", first+uint64(n), left)
				}
				wander = max(wander, d.counts().Also)
			}
			testkit.Between(t, fmt.Sprintf("seed %d: devices that looked up a resolver on one day", first+uint64(n)), wander, 5, 10)
			queries += h.queries
		})
	}
	t.Logf("%d households of ten devices from seed %d on, two days each, %d queries a day each: nobody is reported", seeds, first, queries/seeds/2)
}
