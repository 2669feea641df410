package block

import (
	"net"
	"net/netip"
	"slices"
	"strings"
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

// A device that asks for nothing but a resolver while it rests, and for more when it is used, is reported
// in its first night, and in no other.
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
		if !slices.Equal(nights, []int{0}) {
			t.Errorf("Reported in the nights %v", nights)
		}
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
			if want := map[bool]int{true: 1}[tc.left]; left != want || d.counts().Left != want {
				t.Errorf("%s: reported %d times, %+v", tc.name, left, d.counts())
			}
		}
	})
}

// The log, the report, the page, explain and the metric say the same, and tell an address only where names are
// logged.
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
			r := process.Report()
			if r.Devices.Left != left || r.Devices.Also != also || len(r.Devices.Told) != told {
				t.Errorf("%s: %+v", when, r.Devices)
			}
			for state, n := range map[string]int{"left": left, "also": also} {
				if got := testkit.Metric(t, "devices", "state", state); got != float64(n) {
					t.Errorf("%s: the metric of %s is %v, want %d", when, state, got, n)
				}
			}
			if a := named.Why(lookup.FromQname("x.dns.google.")); !strings.Contains(a.Note, "a public encrypted resolver: "+r.Devices.InWords()) {
				t.Errorf("%s: %+v", when, a)
			}
			if a := named.Why(lookup.FromQname("www.google.com.")); strings.Contains(a.Note, "resolver") {
				t.Errorf("%s: %+v", when, a)
			}
			if shown := (page{process}).Report().Devices; shown.Left != left || len(shown.Told) != told {
				t.Errorf("%s: the page has %+v", when, shown)
			}
			if n := len(lines.About("it may not be protected")); n != left && when != "both are back" {
				t.Errorf("%s: %d lines", when, n)
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
	slices.Sort(left)
	if len(left) != 2 || len(back) != 2 || !strings.Contains(left[0], "[WARNING]") || !strings.Contains(left[0], "10.0.0.1 asked for dns.google ") ||
		!strings.Contains(left[0], " times today and nothing else since ") || !strings.Contains(left[1], "A device asked for dns.google ") || !strings.Contains(back[0]+back[1], "[INFO]") {
		t.Errorf("%q\n%q", left, back)
	}
	for _, line := range lines.About("") {
		if strings.Contains(line, "10.0.0.2") {
			t.Errorf("A client of a server block without log is told: %s", line)
		}
	}
}

// Where names are not logged any more, no address is told or kept, and where pages have no names, none has it: a reload may
// take the words log and names from one server block, and leave them to another one.
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
				if w.client.IsValid() != (told == 1) {
					t.Errorf("%s: kept %v", when, w.client)
				}
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
	if !d.Since.Equal(begun.Round(time.Second)) || !d.Last.Equal(begun.Add(time.Hour).Round(time.Second)) {
		t.Errorf("%s since %s, last at %s", now, d.Since, d.Last)
	}
}

// The numbers of the page count the day.
func TestDevicesOfYesterdayThatStayAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := alone(t).devices, watched()
		b.Heard(clientAt(1), SignOf("dns.google."))
		if r := d.counts(); r.Left != 0 || r.Also != 1 {
			t.Errorf("%+v", r)
		}
		time.Sleep(25 * time.Hour)
		d.sweep(everyZone, time.Now())
		if r := d.report(everyZone, time.Now()); r.Any() || len(r.Told) != 0 || len(d.wanderers) != 0 {
			t.Errorf("%+v, %d kept", r, len(d.wanderers))
		}
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
	if since := d.wanderers[key].since; !since.Equal(now) {
		t.Errorf("since %v, want %v", since, now)
	}
	d.sweep(everyZone, now)
	if d.swept != 2 {
		t.Errorf("a sweep that began earlier was of minute %d", d.swept)
	}
}
