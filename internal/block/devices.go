package block

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// devices tells which clients look for public encrypted resolvers, and which of them ask this server for
// nothing else any more: these may not be protected.
//
//	query ──▶ SignOf ────┬─ ordinary ──▶ clients, without a lock ──sweep──┐
//	                     ├─ tells nothing                                 ▼
//	                     └─ resolver ──▶ wanderer ◀── it is back, or it has left ──▶ log line, status
//
// A client has left if, after its last ordinary name, it has gone on to ask for resolvers for hours, and for much
// longer than ever before when it came back; see wanderer.left. There is one per process, in memory only. It is safe for
// concurrent use.
type devices struct {
	clients *clients
	began   time.Time

	mu        sync.Mutex // not held while a line is logged
	swept     uint32     // minute of the last sweep
	halved    uint32     // minute of the last sweep that halved
	wanderers map[uint64]*wanderer
	count     status.Devices // of wanderers; without Told
	lines     say.Daily      // of clients that have left
}

func newDevices() *devices {
	return &devices{clients: newClients(), began: time.Now(), wanderers: make(map[uint64]*wanderer)}
}

// wanderer is a client that asks for resolvers.
type wanderer struct {
	client   netip.Addr    // zero: it is not told, as names are not logged
	zones    string        // of the server block that tells client
	onPage   bool          // pages may tell client
	resolver string        // that it asked for last
	last     time.Time     // when that was
	today    int           // queries for resolvers on the day of last
	since    time.Time     // when it last asked for another name, rounded up; or the first query that was seen
	active   uint32        // see seen
	minutes  int           // in which it asked for resolvers since then
	counted  time.Time     // when the last of these began
	habit    time.Duration // the longest for which it asked for resolvers only, and came back
	gone     bool          // it has left
	told     bool          // in the log
}

// When a client has left. Devices that are at rest ask for few names, and a device that has just begun to use
// another resolver has asked here for many.
const (
	regular       = 30            // minutes with ordinary names that make a client one that used to ask here
	regularQuiet  = 3 * time.Hour // for which such a client asks for resolvers only
	regularSigns  = 3             // different minutes in which it does
	unknownQuiet  = 6 * time.Hour // the same of other clients, such as those that had left before the start
	unknownSigns  = 10
	longestHabit  = 12 * time.Hour // of what a client is forgiven
	forgetAfter   = 24 * time.Hour // without a query for a resolver
	mostOnReports = 100            // devices that are told with a report
)

// left reports whether the client has left. What counts is for how long it still asked for resolvers after
// its last ordinary name: a device that is switched off asks for nothing. Some devices do so each night; they
// show that by coming back.
func (w *wanderer) left() bool {
	quiet := w.last.Sub(w.since)
	if quiet <= 2*w.habit {
		return false
	}
	if w.active >= regular {
		return quiet >= regularQuiet && w.minutes >= regularSigns
	}
	return quiet >= unknownQuiet && w.minutes >= unknownSigns
}

// wanders notes a query for a resolver.
func (w *wanderer) wanders(resolver string, now time.Time) {
	w.today = w.askedToday(now) + 1
	w.resolver, w.last = resolver, now
	if now.Sub(w.counted) >= time.Minute {
		w.minutes, w.counted = w.minutes+1, now
	}
}

// back notes ordinary names: the client is not gone.
func (w *wanderer) back(active uint32, now time.Time) {
	if w.minutes > 0 {
		w.habit = min(max(w.habit, w.last.Sub(w.since)), longestHabit)
	}
	w.since, w.active, w.minutes, w.counted = now, active, 0, time.Time{}
	w.gone, w.told = false, false
}

// askedToday returns how many queries for resolvers there were on the day of now.
func (w *wanderer) askedToday(now time.Time) int {
	if !sameDay(w.last, now) {
		return 0
	}
	return w.today
}

func sameDay(a, b time.Time) bool {
	a, b = a.Local(), b.Local()
	return a.YearDay() == b.YearDay() && a.Year() == b.Year()
}

// device returns what is told of the client.
func (w *wanderer) device(now time.Time) status.Device {
	d := status.Device{Resolver: w.resolver, Asked: w.askedToday(now), Last: say.ByClock(w.last, now), Since: say.ByClock(w.since, now), Left: w.gone, Zones: w.zones, Named: w.onPage}
	if w.client.IsValid() {
		d.Client = w.client.String()
	}
	return d
}

// Heard notes that a client asks for a name with this sign, in the scope of the block or not. It returns a hash
// of the client; 0 if it has no address. For an ordinary name, without a sign, it takes no lock and does not
// allocate.
func (b *Block) Heard(from net.Addr, x *Sign) (key uint64) {
	d := process.devices
	key = d.clients.keyOf(ipOf(from))
	switch {
	case key == 0:
	case x == nil:
		d.clients.ordinary(key)
	case x.resolver:
		var client netip.Addr // is told where names are logged
		if b.Config.LogBlocked {
			client = ClientOf(from)
		}
		d.wanders(key, client, b.zones(), b.Config.StatusNames, x.name, time.Now())
	}
	return key
}

// wanders notes that a client asks for a resolver. The address is zero where it must not be told.
func (d *devices) wanders(key uint64, client netip.Addr, zones string, onPage bool, resolver string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.wanderers[key]
	if w == nil {
		if len(d.wanderers) >= maxClients {
			return
		}
		w = &wanderer{since: now}
		if s := d.clients.table.Load().find(key); s != nil && s.last > 0 {
			w.active, w.since = s.active, now.Add(-time.Duration(max(d.minute(now), s.last)-s.last)*time.Minute) // a sweep may have come first
		}
		d.wanderers[key] = w
	}
	if client.IsValid() {
		w.client, w.zones, w.onPage = client, zones, onPage
	}
	if w.wanders(resolver, now); w.today == 1 && !w.gone {
		d.count.Also++
	}
}

// minute returns the minutes since the beginning, from 1 on.
func (d *devices) minute(now time.Time) uint32 {
	return 1 + uint32(max(0, now.Sub(d.began))/time.Minute)
}

// sweep looks, once a minute, who has left and who is back, and returns lines for the log. named says whether a server
// block may tell clients of its zones; no address of others is kept.
func (d *devices) sweep(named func(zones string) bool, now time.Time) (left, back []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	minute := d.minute(now)
	if minute <= d.swept {
		return nil, nil
	}
	d.swept = minute
	for _, w := range d.wanderers {
		if w.client.IsValid() && !named(w.zones) {
			w.client, w.onPage = netip.Addr{}, false
		}
	}
	halve := minute-d.halved >= minutesOfDay
	if halve {
		d.halved = minute
	}
	crowded := d.clients.sweep(minute, halve, func(key uint64, active uint32) {
		if w := d.wanderers[key]; w != nil {
			if w.told {
				back = append(back, w.device(now).BackAfter(now))
			}
			w.back(active, now)
		}
	})
	left, forgotten := d.judge(crowded, now)
	d.makeRoom()
	d.recount(now)
	return left, append(back, forgotten...)
}

// judge looks who has left, and forgets who does not ask any more. If it is crowded, ordinary names may have been
// overlooked. The caller holds mu.
func (d *devices) judge(crowded bool, now time.Time) (left, forgotten []string) {
	for key, w := range d.wanderers {
		switch {
		case now.Sub(w.last) > forgetAfter:
			if w.told {
				forgotten = append(forgotten, w.device(now).Forgotten())
			}
			delete(d.wanderers, key)
		case w.gone:
		case crowded:
			w.since, w.minutes = now, 0
		case w.left():
			w.gone = true
			if w.told = d.lines.First(strconv.FormatUint(key, 16), now); w.told {
				left = append(left, w.device(now).String())
			}
		}
	}
	return left, forgotten
}

// recount counts who wanders. The caller holds mu.
func (d *devices) recount(now time.Time) {
	d.count = status.Devices{}
	for _, w := range d.wanderers {
		switch {
		case w.gone:
			d.count.Left++
		case w.askedToday(now) > 0:
			d.count.Also++
		}
	}
}

// makeRoom forgets wanderers if there are too many: those that have not left, of these who used to ask least.
// The caller holds mu.
func (d *devices) makeRoom() {
	if len(d.wanderers) < maxClients*3/4 {
		return
	}
	keys := make([]uint64, 0, len(d.wanderers))
	for key, w := range d.wanderers {
		if !w.gone || w.active < regular {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b uint64) int {
		x, y := d.wanderers[a], d.wanderers[b]
		return cmp.Or(cmp.Compare(x.active, y.active), x.last.Compare(y.last))
	})
	for _, key := range keys[:min(len(keys), maxClients/2)] {
		delete(d.wanderers, key)
	}
}

// counts returns how many wander, as of the last minute.
func (d *devices) counts() status.Devices {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// report returns who wanders; addresses as sweep keeps them.
func (d *devices) report(named func(zones string) bool, now time.Time) status.Devices {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.count
	r.Told = []status.Device{}
	for _, w := range d.wanderers {
		if w.client.IsValid() && (w.gone || w.askedToday(now) > 0) && named(w.zones) {
			r.Told = append(r.Told, w.device(now))
		}
	}
	slices.SortFunc(r.Told, status.Device.Compare)
	r.Told = r.Told[:min(len(r.Told), mostOnReports)]
	return r
}

// sweepDevices logs which devices have left and which are back.
func (p *Process) sweepDevices() {
	left, back := p.devices.sweep(zonesOf(p.all(), logsClients), time.Now())
	for _, line := range left {
		log.Warning(line)
	}
	for _, line := range back {
		log.Info(line)
	}
}
