package block

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// process is what the server blocks of this process are together.
var process = &Process{devices: newDevices()}

// shownCostly is how many of the names that cost most are shown.
const shownCostly = 3

// ThisProcess returns what the server blocks of this process are together.
func ThisProcess() *Process { return process }

// Process is what the server blocks that have started and not ended are together: who protects, what
// was blocked, and why, and who asks others. It outlives reloads. It is safe for concurrent use.
type Process struct {
	pages   status.Pages
	recent  status.Recent
	devices *devices

	memories    memories
	unconfirmed unconfirmed

	changing   sync.Mutex // held while lists of the server are opened, or pages
	unusable   say.Daily  // of these lists
	confirming sync.Mutex // held while prefixes are confirmed for a program

	mu      sync.Mutex
	blocks  []*Block
	unwatch func()       // ends watch, and waits for that; nil: there is no block
	checked func() int64 // see Count
	counted moment       // when the first block started
	state   status.State // of the last report
	since   moment       // when state began; zero: there was no report
}

// moment is a time that is right, too, after the clock was set, as on a router whose clock begins in the past. The
// zero moment is none. It is a value.
type moment struct {
	at     time.Time     // by the clock at that time
	booted time.Duration // since boot; 0: not known
}

// seen returns the moment by the clock that shows now.
func (m moment) seen(now time.Time, booted time.Duration) time.Time {
	if m.at.IsZero() || m.booted == 0 {
		return m.at
	}
	if at := now.Add(m.booted - booted).Round(0); at.Sub(m.at.Round(0)).Abs() > time.Minute {
		return at.Truncate(time.Second)
	}
	return m.at
}

// Count says how many names the process has decided about, for reports. It is called before blocks
// start.
func (p *Process) Count(checked func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked = checked
}

func (p *Process) add(b *Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks = append(p.blocks, b)
	if p.counted.at.IsZero() {
		p.counted = moment{time.Now(), engine.SinceBoot()}
	}
	if p.unwatch == nil {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { p.watch(ctx) })
		p.unwatch = func() { cancel(); wg.Wait() }
	}
}

// remove takes a block out, and waits until whoever opens lists of the server or a page has done so, but not for a disk
// that hangs: from then on the block gets none.
func (p *Process) remove(b *Block) {
	p.mu.Lock()
	p.blocks = slices.DeleteFunc(p.blocks, func(other *Block) bool { return other == b })
	unwatch := func() {}
	if len(p.blocks) == 0 && p.unwatch != nil {
		unwatch, p.unwatch = p.unwatch, nil
	}
	p.mu.Unlock()
	files.Wait(func() {
		unwatch()
		p.changing.Lock()
		defer p.changing.Unlock()
	})
}

// all returns the blocks by their zones.
func (p *Process) all() []*Block {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(p.blocks), func(a, b *Block) int { return cmp.Compare(a.zones(), b.zones()) })
}

// openStatus serves the status page that the Corefile names, if it does. The result ends
// that. A page that cannot be served is logged: it must not keep CoreDNS from serving.
func (b *Block) openStatus() (end func()) {
	b.closePage = func() {}
	if b.Config.Status == "" {
		return b.closePage
	}
	if err := b.servePage(); err != nil {
		b.pageless = true
		log.Errorf("There is no status page at %s: %v. Names are checked as always. It is tried again every %s. Choose another address for status, then reload CoreDNS", b.Config.Status, err, watchInterval)
	}
	return func() { b.closePage() }
}

func (b *Block) servePage() error {
	at, release, err := process.pages.Open(b.Config.Status, page{process})
	if err != nil {
		return err
	}
	if b.closePage, b.pageless = release, false; at != nil {
		log.Infof("The status page is at http://%s/", at)
	}
	return nil
}

// openPages serves pages that could not be served before: a reload may move a page to another address of its port,
// which the page of before has until it ends.
func (p *Process) openPages() {
	p.changing.Lock()
	defer p.changing.Unlock()
	for _, b := range p.all() {
		if b.pageless {
			_ = b.servePage()
		}
	}
}

// page is the process as pages may show it. It implements status.Source.
type page struct{ *Process }

// Report implements status.Source: names and devices that server blocks do not let the page have are left out, and the ones from
// before a reload that has taken the word names away.
func (p page) Report() status.Report {
	r, shows := p.Process.Report(), zonesOf(p.all(), showsNames)
	r.Names = slices.DeleteFunc(r.Names, func(b status.Blocked) bool { return !b.Named || !shows(b.Zones) })
	for i := range r.Late {
		r.Late[i].Named = r.Late[i].Named && shows(r.Late[i].Zones)
	}
	r.Late = status.ForPages(r.Late)
	r.Devices.Told = slices.DeleteFunc(r.Devices.Told, func(d status.Device) bool { return !d.Named || !shows(d.Zones) })
	return r
}

// Why implements status.Source.
func (p page) Why(h lookup.Host) status.Why {
	w := p.Process.Why(context.Background(), h, false)
	if w.Last != nil && (!w.Last.Named || !zonesOf(p.all(), showsNames)(w.Last.Zones)) {
		w.Last = nil
	}
	return w
}

func showsNames(b *Block) bool { return b.Config.StatusNames }

func logsClients(b *Block) bool { return b.Config.LogBlocked }

// zonesOf returns a function that reports whether one of the blocks for these zones is so. What was noted before a reload
// may be of one that is not so any more.
func zonesOf(blocks []*Block, is func(*Block) bool) func(zones string) bool {
	return func(zones string) bool {
		return slices.ContainsFunc(blocks, func(b *Block) bool { return b.zones() == zones && is(b) })
	}
}

// Passed notes a query for a host that is in no list. It takes no lock and does not allocate.
func (b *Block) Passed(h lookup.Host) { loud.familiar.count(h) }

// Blocked notes a query that is blocked: to tell of it for an hour, and to log what may be a
// mistake of Safe Browsing. target is what the name is an alias of, if the decision is about that.
func (b *Block) Blocked(q dns.Question, target string, client string, d lookup.Decision, now time.Time) {
	loud.blocked(q, d, now)
	entry := status.Blocked{
		Name: shown(q.Name), Zones: b.zones(), Folder: b.Config.DB, List: d.List, Entry: strings.TrimSuffix(d.Expression, "/"), Target: shown(target), Threat: d.Threat.String(), By: d.By.String(),
	}
	switch s := b.service.Load(); {
	case d.By == lookup.ByServer:
		entry.Confirmed = now
	case d.By == lookup.ByCache && s != nil:
		entry.Confirmed = s.Checker.Confirmed(d.Expression)
	}
	if b.Config.LogBlocked {
		entry.Client = client
	}
	entry.Named, entry.Report = b.Config.StatusNames, b.reportTo(d)
	entry.Second = !isOwn(d) && process.unconfirmed.blocked(client, entry.Name)
	process.recent.Blocked(entry, now)
}

// Unconfirmed notes a query for a name that a list holds, and that passed because the server did not
// confirm it in time, or could not be asked.
func (b *Block) Unconfirmed(client netip.Addr, qname string, now time.Time) {
	if b.Config.Monitor {
		return
	}
	process.unconfirmed.passed(client.String(), shown(qname))
	process.recent.Unconfirmed(now)
}

// unconfirmed are the pairs of client and name that passed lately and could not be confirmed. The zero
// value is ready to use; it is safe for concurrent use.
type unconfirmed struct {
	mu    sync.Mutex
	seed  maphash.Seed
	pairs map[uint64]bool // hashes; of too many any one goes
}

// maxUnconfirmed is the most pairs.
const maxUnconfirmed = 4096

// key returns the hash of a pair. The caller holds mu.
func (u *unconfirmed) key(client, name string) uint64 {
	if u.pairs == nil {
		u.seed, u.pairs = maphash.MakeSeed(), make(map[uint64]bool)
	}
	return maphash.String(u.seed, client+" "+name)
}

func (u *unconfirmed) passed(client, name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := u.key(client, name)
	for other := range u.pairs {
		if len(u.pairs) < maxUnconfirmed {
			break
		}
		delete(u.pairs, other)
	}
	u.pairs[key] = true
}

// blocked reports whether a query of the client for the name passed before. The next one does not count.
func (u *unconfirmed) blocked(client, name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := u.key(client, name)
	was := u.pairs[key]
	delete(u.pairs, key)
	return was
}

// Searched notes that the decision about a name took this number of searches, where names may be shown.
func (b *Block) Searched(qname string, d lookup.Decision, searches int) {
	s := b.service.Load()
	if s != nil && b.Config.StatusNames && b.Settings.Dialect().Paid && (d.By == lookup.ByServer || d.By == lookup.ByCache) && searches > 0 {
		s.Costs.Searched(shown(qname), searches, time.Now())
	}
}

// shown returns a name as people see it.
func shown(qname string) string { return strings.ToLower(strings.TrimSuffix(qname, ".")) }

// ShareSpent logs that a client has spent its share of the budget: the first one of each day.
func (b *Block) ShareSpent(client netip.Addr, now time.Time) {
	if s := b.service.Load(); s != nil {
		b.shares.Log(s, client, client, now)
	}
}

// Report returns what protects, and what was blocked.
func (p *Process) Report() status.Report {
	blocks, now := p.all(), time.Now()
	r := status.Report{At: now, Version: say.Version, Services: []status.Service{}, Blocks: []status.Block{}}
	r.Hour, r.Names = p.recent.Hour(now)
	r.Late = p.recent.LastLate(now)
	logged := zonesOf(blocks, logsClients)
	for i := range r.Names {
		if b := &r.Names[i]; b.Client != "" && !logged(b.Zones) {
			b.Client = ""
		}
	}
	for i := range r.Late {
		if l := &r.Late[i]; l.Client != "" && !logged(l.Zones) {
			l.Name, l.Client = "", ""
		}
	}
	r.Devices = p.devices.report(logged, now)
	services := make(map[engine.Settings]int) // blocks with equal settings have one
	for _, b := range blocks {
		standing := b.standing()
		if s := b.service.Load(); s != nil {
			i, known := services[b.Settings]
			if !known {
				i = len(r.Services)
				services[b.Settings] = i
				service := s.Standing(now)
				service.Notice = b.Reply().Notice()
				r.Services = append(r.Services, service)
			}
			if standing.Service = i; r.Services[i].Paid && b.Config.StatusNames {
				r.Services[i].Costly = s.Costs.Most(now, shownCostly)
			}
		}
		r.Blocks = append(r.Blocks, standing)
		r.Named = r.Named || b.Config.StatusNames
		r.LooksBack = r.LooksBack || b.LooksBack()
	}
	r.Judge()
	p.mu.Lock()
	defer p.mu.Unlock()
	var checked int64
	if p.checked != nil {
		checked = p.checked()
	}
	booted := engine.SinceBoot()
	if p.since.at.IsZero() || r.State != p.state {
		p.state, p.since = r.State, moment{now, booted}
	}
	r.Today, r.Counted, r.Since = p.recent.Day(checked, now), p.counted.seen(now, booted), p.since.seen(now, booted)
	return r
}

// watchInterval is how often a state is looked at, so that reports say when it began, and to which
// hour names belong, for pages that are still to be served, and for lists that another process has written.
const watchInterval = 5 * time.Second

// watch notes changes of the state until ctx ends.
func (p *Process) watch(ctx context.Context) {
	for ctx.Err() == nil {
		p.Report()
		p.sweepDevices()
		p.openPages()
		p.lookForServerLists()
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
}

// Why says what the server blocks do with a host. With confirm the server is asked about a suspected
// one, else none is.
func (p *Process) Why(ctx context.Context, h lookup.Host, confirm bool) status.Why {
	now, qname := time.Now(), h.String()+"."
	w := status.Why{Name: h.String(), At: now}
	for _, b := range p.all() {
		if !b.InScope(qname) {
			continue
		}
		last := b.last(h, now)
		if last != nil && (w.Last == nil || last.Last.After(w.Last.Last)) {
			w.Last = last
		}
		a := b.why(ctx, h, confirm, last, now)
		w.Answers = append(w.Answers, a)
		if a.Blocked() {
			w.Report = cmp.Or(w.Report, b.reportTo(lookup.Decision{By: deciderOf(a.DecidedBy), List: a.List}))
		}
	}
	if w.Last != nil && !zonesOf(p.all(), logsClients)(w.Last.Zones) {
		w.Last.Client = ""
	}
	if w.Answers == nil {
		w.Answers = []status.Answer{{Zones: "other zones", Verdict: status.VerdictPasses, Text: h.String() + " is not checked: no server block checks its zone"}}
	}
	if w.Judge(); w.Verdict == status.VerdictBlocked || w.Verdict == status.VerdictSuspected {
		w.Allow = status.Allowing("safebrowsing", "1h", w.Name)
	}
	return w
}

// reportURL is where to tell Google of a mistake. Web Risk has the lists of Safe Browsing, and no form of
// its own for a site that is listed by mistake.
const reportURL = "https://safebrowsing.google.com/safebrowsing/report_error/"

// Mistake returns what to do if the block of a name is one: the command that lets the name pass for an hour,
// and where to report it. "": there is none.
func (b *Block) Mistake(qname string, d lookup.Decision) (allow, report string) {
	return status.Allowing("safebrowsing", "1h", shown(qname)), b.reportTo(d)
}

// reportTo returns where to report that the block of a name is a mistake: to Google, or to where the own
// list that blocks it says. "" if that is not known.
func (b *Block) reportTo(d lookup.Decision) string {
	switch {
	case isOwn(d):
		if lists := b.own.Load(); lists != nil {
			return ownlist.Tracker(lists.files, d.List)
		}
	case b.Reply().Advisory != "":
		return reportURL
	}
	return ""
}

// zones returns the zones, joined by a space.
func (b *Block) zones() string { return strings.Join(b.Config.Zones, " ") }

// standing returns what the block protects by, without its service.
func (b *Block) standing() status.Block {
	s := status.Block{Zones: b.zones(), Place: b.Config.Place, Service: -1, Monitor: b.Config.Monitor, Fails: b.Config.UnsureFails, Led: b.Config.Keep == config.KeepNothing, Own: []status.OwnList{}}
	s.Paused, _ = b.PausedUntil()
	unfetched := b.unfetched()
	for _, own := range b.OwnLists() {
		o := status.OwnList{Name: own.Named, Allow: own.Allow, Entries: own.InForce(), Updated: own.Modified, Nothing: own.Complaint(), Trouble: unfetched[own.Named]}
		if own.Err != nil {
			o.Trouble = own.Err.Error()
		}
		s.Own = append(s.Own, o)
	}
	return s
}

// A process has its door in a folder, see internal/control, and programs look for it there.

// stateFolder is where services of the packages have their lists, and runtimeFolder their doors.
const stateFolder, runtimeFolder = "/var/lib/coredns-safebrowsing", "/run/coredns-safebrowsing"

// Folder returns where the door of the block is: the folder of the service manager for sockets and the
// like, else the folder of the lists. "": nowhere.
func (b *Block) Folder() string { return cmp.Or(files.RuntimeFolder(), b.Config.PauseFolder()) }

// Folders returns where doors are looked for unless a Corefile says it: in $RUNTIME_DIRECTORY alone if
// that is set.
func Folders() (all []string) {
	if runtime := files.RuntimeFolder(); runtime != "" {
		return []string{runtime}
	}
	lists, _ := config.DefaultFolder()
	for _, folder := range []string{runtimeFolder, "/var/run/safebrowsing", lists, stateFolder} {
		if folder != "" && !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	}
	return all
}

// Beside returns where the door of a server is that has its lists in a folder.
func Beside(folder string) []string {
	if filepath.Clean(folder) == stateFolder {
		return []string{runtimeFolder, folder}
	}
	return []string{folder}
}
