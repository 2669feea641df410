package block

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Look-back: what clients asked for and got is remembered, see lookup.Passed, and compared with the
// lists after each update. Each server block with look_back has a memory of its own, since its
// zones and its log are its own; those that have these in common, as with views, share one. A reload that
// does not change what it depends on keeps it. The operator's own lists have no part in it: they say nothing
// about when a name became a threat.

// memoryKey is what a memory depends on.
type memoryKey struct {
	zones          string
	service, asker string // as in updater.Origin: server blocks that have both in common have all settings of it in common, see Claims
	rule           lookup.Rule
	keep           time.Duration
	names          bool // they are kept: only with log
}

// memory is what the clients of a server block asked for. It is safe for concurrent use.
type memory struct {
	passed  *lookup.Passed
	rule    lookup.Rule // of expressions
	names   *askedNames // of pairs
	holders int         // guarded by memories.mu
}

// memories holds the process's memories. It is safe for concurrent use.
type memories struct {
	mu  sync.Mutex
	all map[memoryKey]*memory
}

// The most bytes of a memory, and the part of all memory that it takes at most.
const (
	mostRemembered  = 4 << 20
	leastRemembered = 64 << 10
	rememberedPart  = 64
)

// rememberedBytes returns the bytes of a memory where the process may use this number; 0: unknown.
func rememberedBytes(usable int64) int {
	if usable <= 0 {
		return mostRemembered
	}
	return int(min(max(usable/rememberedPart, leastRemembered), mostRemembered))
}

// acquire returns the memory of a key, and how to let go of it.
func (m *memories) acquire(key memoryKey) (kept *memory, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[memoryKey]*memory)
	}
	kept = m.all[key]
	if kept == nil {
		for other := range m.all {
			if other.zones == key.zones {
				log.Infof("Look-back for %s starts with nothing: what is remembered for these zones belongs to other settings", key.zones)
				break
			}
		}
		bytes := rememberedBytes(lookup.UsableMemory())
		kept = &memory{passed: lookup.NewPassed(bytes, key.keep, engine.SinceBoot), rule: key.rule}
		if key.names {
			kept.names = newAskedNames(bytes / bytesPerName)
		}
		m.all[key] = kept
	}
	kept.holders++
	return kept, sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if kept.holders--; kept.holders == 0 {
			delete(m.all, key)
		}
	})
}

// askedNames are the names of pairs, where names are logged anyway: the last ones. Without them, of the
// nil askedNames, none is kept. It is safe for concurrent use.
type askedNames struct {
	mu    sync.Mutex
	names map[lookup.Pair]askedName
	order []lookup.Pair // a ring of keys of names
	next  int           // in order
}

type askedName struct {
	client, name string
	at           time.Time
	place        int // in order: a pair that was forgotten and is back has an older one, too
}

// bytesPerName is how many bytes of the memory there are for each name. A name takes some 200 bytes.
const bytesPerName = 256

func newAskedNames(most int) *askedNames {
	return &askedNames{names: make(map[lookup.Pair]askedName), order: make([]lookup.Pair, most)}
}

func (a *askedNames) add(p lookup.Pair, client netip.Addr, h lookup.Host, now time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if oldest := a.order[a.next]; a.names[oldest].place == a.next {
		delete(a.names, oldest)
	}
	a.names[p], a.order[a.next] = askedName{client.String(), strings.Clone(h.String()), now, a.next}, p
	a.next = (a.next + 1) % len(a.order)
}

// of returns the name and the client of a pair, if they are kept.
func (a *askedNames) of(p lookup.Pair) (askedName, bool) {
	if a == nil {
		return askedName{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name, ok := a.names[p]
	return name, ok
}

// forget forgets the names that were asked for before a time.
func (a *askedNames) forget(before time.Time) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, name := range a.names {
		if name.at.Before(before) {
			delete(a.names, p)
		}
	}
}

// LooksBack reports whether the block remembers what clients asked for.
func (b *Block) LooksBack() bool { return b.memory != nil }

// Remembers reports whether Asked has an effect for a host with this decision: it passes, since no list has it. In mode
// realtime the server may have been asked about it all the same.
func (b *Block) Remembers(d lookup.Decision) bool {
	return b.memory != nil && (d.By == lookup.ByList || b.Settings.Mode == lookup.RealTime && d.Verdict == lookup.Safe && d.By != lookup.ByNobody && !isOwn(d))
}

// Asked remembers that a client asked for a public host that is in no list. key is its hash, as Heard
// returns it. For a pair that is remembered it takes no lock and does not allocate.
func (b *Block) Asked(key uint64, from net.Addr, h lookup.Host) {
	if m := b.memory; m != nil {
		if p, added := m.passed.Note(key, h, m.rule); added {
			m.names.add(p, ClientOf(from), h, time.Now())
		}
	}
}

// AskedAbout is Asked for a host that passed with this decision: also if a list holds it, and the server did not confirm
// it in time.
func (b *Block) AskedAbout(client netip.Addr, h lookup.Host, d lookup.Decision) {
	m, unsure := b.memory, d.Verdict == lookup.Unsure
	if m == nil || !unsure && !b.Remembers(d) {
		return
	}
	p, added := m.passed.Note(process.devices.clients.keyOf(client.AsSlice()), h, m.rule)
	if !added {
		return
	}
	if unsure {
		m.passed.LookSoon()
	}
	m.names.add(p, client, h, time.Now())
}

const (
	lookBackEvery = 5 * time.Second // for lists that are new
	lookBackFor   = time.Minute     // at most at a time
	forgetEvery   = 5 * time.Minute // what is old
	mostLines     = 20              // in the log after one update
)

// LookBack begins to look back, if the stanza says so, until end is called. Start calls it.
func (b *Block) LookBack() (end func()) {
	if b.Config.LookBack == 0 || !b.Config.Online {
		return func() {}
	}
	of := b.Settings.Origin(b.Config.Secret)
	m, release := process.memories.acquire(memoryKey{b.zones(), of.Name, of.Asker, b.Settings.Dialect().Rule, b.Config.LookBack, b.Config.LogBlocked})
	b.memory = m
	for _, list := range strings.Fields(b.Settings.Lists) {
		listedLateTotal.WithLabelValues(list).Add(0) // an alert sees only what grows
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.lookBack(ctx, m) })
	return func() {
		cancel()
		wg.Wait()
		release()
	}
}

// lookBack looks back until ctx ends. While nothing may be asked it waits, and in a pause, which sends nothing.
func (b *Block) lookBack(ctx context.Context, m *memory) {
	for forgot := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookBackEvery):
		}
		now := time.Now()
		_, paused := b.PausedUntil()
		if s := b.service.Load(); s != nil && !paused && !s.SearchHold().Active(now) {
			b.lookBackOnce(ctx, m, s)
		}
		if now.Sub(forgot) >= forgetEvery {
			m.passed.Forget()
			m.names.forget(now.Add(-b.Config.LookBack))
			forgot = now
		}
	}
}

// lookBackOnce compares the memory with the lists, and tells what it finds. Its searches have the share
// of one client: the zero address.
func (b *Block) lookBackOnce(ctx context.Context, m *memory, s *engine.Service) {
	ctx, cancel := context.WithTimeout(ctx, lookBackFor)
	defer cancel()
	late, err := s.Checker.LookBack(ctx, m.passed, lookup.AdmitBy(nil, s.Shares, netip.Addr{}))
	if err != nil {
		log.Debugf("Look-back asks again in a minute: %v", err)
	}
	b.tellLate(b.lateOf(late, m, time.Now()))
}

// sharing returns the server blocks that have the memory of this one: any of them may look back, for all.
func (b *Block) sharing() []*Block {
	others := slices.DeleteFunc(process.all(), func(other *Block) bool { return other == b || other.memory != b.memory })
	return append(others, b)
}

// lateOf returns what is to be told: of names that are kept each one by itself, else how many devices
// asked. The operator's own lists and needed names pass, whatever a list says.
func (b *Block) lateOf(late []lookup.Late, m *memory, now time.Time) (all []status.Late) {
	type named struct {
		client string
		hash   lookup.FullHash
	}
	devices, told := make(map[lookup.FullHash]map[uint32]bool), make(map[named]bool)
	of := make(map[lookup.FullHash]int) // index in all
	blocks := b.sharing()
	onPage := !slices.ContainsFunc(blocks, func(b *Block) bool { return !b.Config.StatusNames })
	for _, l := range late {
		next := status.Late{
			Devices: 1, Asked: l.Asked, Listed: now, List: l.List, Threat: status.ListedAs(l.Threat), Zones: b.zones(), Named: onPage,
		}
		if asked, ok := m.names.of(l.Pair); ok {
			h := lookup.FromQname(asked.name + ".")
			if key := (named{asked.client, l.Hash}); !told[key] && slices.ContainsFunc(blocks, func(b *Block) bool { return b.isLate(h, l.Hash) }) {
				told[key] = true
				next.Name, next.Client = asked.name, asked.client
				all = append(all, next)
			}
			continue
		}
		if devices[l.Hash] == nil {
			devices[l.Hash] = make(map[uint32]bool)
			of[l.Hash] = len(all)
			all = append(all, next)
		}
		devices[l.Hash][l.Client] = true
		all[of[l.Hash]].Devices = len(devices[l.Hash])
	}
	slices.SortStableFunc(all, func(a, b status.Late) int {
		return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Client, b.Client))
	})
	return all
}

// askedFor adds who asked for a host that passed. Two names of a device may look the same: what is known to be
// another name does not count.
func (m *memory) askedFor(h lookup.Host, all *status.Asked) {
	for _, one := range m.passed.Asked(h, m.rule) {
		asked, known := m.names.of(one.Pair)
		if !known || asked.name == h.String() {
			all.Add(one.Asked, asked.client)
		}
	}
}

// isLate reports whether a host has an expression with a full hash, and the block would not let it pass.
func (b *Block) isLate(h lookup.Host, hash lookup.FullHash) bool {
	var c Checked
	b.check(h, &c)
	return c.By != lookup.ByAllow && c.Needed == "" && slices.ContainsFunc(h.ExpressionsBy(b.Settings.Dialect().Rule), func(e string) bool {
		return lookup.HashExpression(e) == hash
	})
}

// lateLine is a line of log json. Programs read it: fields are added, but none is renamed or removed.
type lateLine struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"` // listed_late
	status.Late
}

// tellLate logs and counts names that were listed late, and keeps them for a day.
func (b *Block) tellLate(all []status.Late) {
	for i, l := range all {
		listedLateTotal.WithLabelValues(l.List).Add(float64(l.Devices))
		switch {
		case i >= mostLines:
		case b.Config.LogJSON:
			l.Asked, l.Listed = l.Asked.UTC(), l.Listed.UTC()
			log.JSON(lateLine{l.Listed, "listed_late", l})
		default:
			log.Warningf("Listed too late: %s", l)
		}
	}
	if more := len(all) - mostLines; more > 0 {
		log.Warningf("Listed too late: %s more, see \"safebrowsing status\"", say.Count(more, "name", "names"))
	}
	process.recent.Late(all)
}
