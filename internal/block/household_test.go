package block

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
	h := &household{Rand: rand.New(rand.NewPCG(seed, 30)), block: b}
	user := func(kind string, busy, from, to float64, resolver string, often float64) {
		h.clients = append(h.clients, &homeDevice{kind, 12, 0.80, busy, busy / 40, from, to, resolver, often, 1, ""})
	}
	other := func(kind string, busy, idle float64, resolver string, often, alone float64) {
		h.clients = append(h.clients, &homeDevice{kind, 4.3, 0.65, busy, idle, 0, 24, resolver, often, alone, ""})
	}
	user("phone", 30, 6.5, 23, "", 0)
	user("laptop", 60, 8, 18, "dns.google", 0.05)
	user("phone", 20, 7, 22.5, "cloudflare-dns.com", 0.1)
	user("tablet", 25, 16, 21, "", 0)
	user("desktop", 50, 19, 23.5, "mozilla.cloudflare-dns.com", 0.02)
	user("phone", 25, 6, 22, "dns.google", 0.02)
	other("television", 20, 2, "dns.google", 0.5, 0)
	other("speaker", 4, 4, "dns.google", 0.3, 6)
	other("camera", 6, 6, "", 0, 0)
	other("printer", 0.5, 0.2, "", 0, 0)
	return h
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
		if returned != 1 {
			t.Errorf("%d came back, want 1", returned)
		}
		for i, c := range h.clients {
			after := reported[i] - leaves[i]
			if _, leaves := leaves[i]; leaves && (after < regularQuiet || after > regularQuiet+2*time.Hour) {
				t.Errorf("The %s %d left, and was reported after %v", c.kind, i, after)
			} else if !leaves && reported[i] != 0 {
				t.Errorf("The %s %d stayed, and was reported", c.kind, i)
			}
		}
		r := d.report(everyZone, time.Now())
		if r.Left != 1 || len(r.Told) == 0 || r.Told[0].Client != "10.0.0.1" || r.Told[0].Resolver != "dns.nextdns.io" || !r.Told[0].Left {
			t.Fatalf("%+v", r)
		}
		if off := r.Told[0].Since.Sub(begin) - leaves[1]; off < -10*time.Minute || off > time.Minute {
			t.Errorf("It left at %v, and is told since %v", leaves[1], r.Told[0].Since.Sub(begin))
		}
	})
}

// Whatever the seed: devices that stay are not reported, though six of ten look up resolvers, too.
func TestNoOrdinaryDeviceIsReported(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 2
	}
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
			if wander < 5 {
				t.Errorf("seed %d: %d devices looked up a resolver on one day", first+uint64(n), wander)
			}
			queries += h.queries
		})
	}
	t.Logf("%d households of ten devices from seed %d on, two days each, %d queries a day each: nobody is reported", seeds, first, queries/seeds/2)
}
