package status

import (
	"cmp"
	"container/list"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// hour is for how long blocked queries are counted by list, and names are kept.
const hour = 60 // minutes

// maxNames is the most names that are kept, of some 300 bytes each. Of those that go for others a hash is
// kept, until the hour has passed: of maxGone at most, in 8 bytes each.
const (
	maxNames = 2048
	maxGone  = 1 << 18
)

// Count is how many queries a list has blocked.
type Count struct {
	List string `json:"list"`
	N    int    `json:"n"`
}

// Blocked is a name that was blocked in the last hour.
type Blocked struct {
	Name      string    `json:"name"`
	List      string    `json:"list"`
	Entry     string    `json:"entry"`    // what matched, without its final slash
	Target    string    `json:"alias_of"` // the name in the answer that the list has; "": Name itself
	Threat    string    `json:"threat"`   // "": an own list
	By        string    `json:"decided_by"`
	Confirmed time.Time `json:"confirmed,omitzero"` // when the server said so
	N         int       `json:"n"`                  // queries since First
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Client    string    `json:"client"` // of the last query, only where blocked names are logged; else ""
	Zones     string    `json:"zones"`  // of the server block
	Report    string    `json:"report"` // where to report that this is a mistake; "": unknown
	Folder    string    `json:"-"`      // of its lists
	Named     bool      `json:"-"`      // pages may show it
	Second    bool      `json:"-"`      // the same client asked before, and passed since the name could not be confirmed
}

// key tells names apart: server blocks may have different lists.
type key struct{ name, zones, folder string }

func (b *Blocked) key() key { return key{b.Name, b.Zones, b.Folder} }

// Day counts names of a day, from midnight, or the start of the process if that is later.
type Day struct {
	Checked int `json:"checked"` // names that a decision was made about
	Blocked int `json:"blocked"` // queries
	Threats
	Hours [24]Pair `json:"hours"` // of the last 24 hours, this one last
}

// Pair counts names of an hour.
type Pair struct {
	Checked int `json:"checked"`
	Blocked int `json:"blocked"`
}

// Threats says how a day's suspected names were stopped, or were not. It counts queries.
type Threats struct {
	InTime      int `json:"confirmed_in_time"`  // blocked, since the server confirmed the threat while the query waited
	Unconfirmed int `json:"passed_unconfirmed"` // passed, since the server did not answer in time or could not be asked
	Second      int `json:"blocked_on_second"`  // blocked, after a query of the same client for the name had passed so
}

func (t *Threats) add(other Threats) {
	t.InTime, t.Unconfirmed, t.Second = t.InTime+other.InTime, t.Unconfirmed+other.Unconfirmed, t.Second+other.Second
}

// Recent counts the queries that were blocked, in memory only. The zero value is ready to use; it is
// safe for concurrent use.
type Recent struct {
	mu      sync.Mutex
	minutes [hour]minute
	hours   [25]anHour            // that a day may have
	checked int64                 // of the last call of Day
	names   map[key]*list.Element // of order
	order   list.List             // of *Blocked, the last one first
	seed    maphash.Seed          // of minute.gone; set with the first of them
	lost    time.Time             // when a name was last blocked without even its hash being kept; zero: never
	late    []Late                // of the last day, the last one first
}

// minute counts the queries of one minute, by list.
type minute struct {
	number int64 // since 1970
	counts map[string]int
	gone   []uint64 // hashes of names that were last blocked then, and went for others
}

// recent reports whether a minute belongs to the hour that ends with minute now: the clock may have been set back.
func (m *minute) recent(now int64) bool { return m.number <= now && now-m.number < hour }

// anHour counts the names of one hour of local time.
type anHour struct {
	began time.Time
	Pair
	Threats
}

// Blocked counts a query that was blocked, and keeps its name, instead of the oldest one if there
// are too many. First, N and Last of b are not used.
func (r *Recent) Blocked(b Blocked, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := now.Unix() / 60
	m := &r.minutes[number%hour]
	if m.number != number || m.counts == nil {
		*m = minute{number: number, counts: make(map[string]int)}
	}
	m.counts[b.List]++
	h := r.hour(now)
	h.Blocked++
	if b.By == lookup.ByServer.String() {
		h.InTime++
	}
	if b.Second {
		h.Second++
	}
	b.N, b.First, b.Last = 1, now, now
	if e := r.names[b.key()]; e != nil {
		old := e.Value.(*Blocked)
		b.N, b.First = old.N+1, old.First
		e.Value = &b
		r.order.MoveToFront(e)
		return
	}
	if r.forget(now); r.order.Len() >= maxNames {
		oldest := r.order.Back()
		r.goes(oldest.Value.(*Blocked), number)
		r.drop(oldest)
	}
	if r.names == nil {
		r.names = make(map[key]*list.Element)
	}
	r.names[b.key()] = r.order.PushFront(&b)
}

// Unconfirmed counts a query that passed because its name could not be confirmed.
func (r *Recent) Unconfirmed(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hour(now).Unconfirmed++
}

// hour returns the counts of the hour of now. The caller holds mu.
func (r *Recent) hour(now time.Time) *anHour {
	local := now.Local()
	began := time.Unix(local.Unix()-int64(60*local.Minute()+local.Second()), 0) // not by time.Date: an hour of the clock comes twice on a day of 25
	h := &r.hours[uint64(began.Unix()/3600)%uint64(len(r.hours))]
	if !h.began.Equal(began) {
		*h = anHour{began: began}
	}
	return h
}

// forget forgets names that were blocked more than an hour ago. The caller holds mu.
func (r *Recent) forget(now time.Time) {
	for e := r.order.Back(); e != nil && now.Sub(e.Value.(*Blocked).Last) >= hour*time.Minute; e = r.order.Back() {
		r.drop(e)
	}
}

// goes keeps a hash of a name that goes for another one. now is the minute. The caller holds mu.
func (r *Recent) goes(b *Blocked, now int64) {
	if r.seed == (maphash.Seed{}) {
		r.seed = maphash.MakeSeed()
	}
	all := 0
	for i := range r.minutes {
		if m := &r.minutes[i]; !m.recent(now) {
			m.gone = nil
		}
		all += len(r.minutes[i].gone)
	}
	if all >= maxGone {
		r.lost = b.Last
		return
	}
	number := min(max(b.Last.Unix()/60, now-hour+1), now) // of the minute before that the place is taken
	m := &r.minutes[number%hour]
	if m.number != number {
		*m = minute{number: number}
	}
	m.gone = append(m.gone, maphash.Comparable(r.seed, b.key()))
}

// drop forgets a name. The caller holds mu.
func (r *Recent) drop(e *list.Element) {
	delete(r.names, e.Value.(*Blocked).key())
	r.order.Remove(e)
}

// Hour returns the counts of the last hour, the highest first, and the names, the last one
// first.
func (r *Recent) Hour(now time.Time) (counts []Count, names []Blocked) {
	counts, names = []Count{}, []Blocked{}
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := make(map[string]int)
	for i := range r.minutes {
		if m := &r.minutes[i]; m.recent(now.Unix() / 60) {
			for list, n := range m.counts {
				sum[list] += n
			}
		}
	}
	for list, n := range sum {
		counts = append(counts, Count{list, n})
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Or(b.N-a.N, cmp.Compare(a.List, b.List)) })
	r.forget(now)
	for e := r.order.Front(); e != nil; e = e.Next() {
		names = append(names, *e.Value.(*Blocked))
	}
	return counts, names
}

// Last returns what is known about a name that was blocked in the last hour by a server block with these
// zones, whose lists are in a folder; nil: nothing.
func (r *Recent) Last(name, zones, folder string, now time.Time) *Blocked {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	e := r.names[key{name, zones, folder}]
	if e == nil {
		return nil
	}
	b := *e.Value.(*Blocked)
	return &b
}

// Gone returns in which minute of the last hour a name was blocked that Last does not know, since more names
// were blocked than are kept; zero: it was not, or see Crowded.
func (r *Recent) Gone(name, zones, folder string, now time.Time) (at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seed == (maphash.Seed{}) {
		return time.Time{}
	}
	hash := maphash.Comparable(r.seed, key{name, zones, folder})
	for i := range r.minutes {
		m := &r.minutes[i]
		if then := time.Unix(m.number*60, 0); m.recent(now.Unix()/60) && then.After(at) && slices.Contains(m.gone, hash) {
			at = then
		}
	}
	return at
}

// Crowded reports whether too many names were blocked in the last hour: of a name that neither Last nor Gone
// knows nobody can say that it was not blocked.
func (r *Recent) Crowded(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost.IsZero() && now.Sub(r.lost) < hour*time.Minute
}

// Day returns the counts of the day. checked is how many names the process has made a decision about.
func (r *Recent) Day(checked int64, now time.Time) (d Day) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hour(now).Checked += int(checked - r.checked)
	r.checked = checked
	local := now.Local()
	for _, h := range r.hours {
		if h.began.After(now) { // the clock may have been set back
			continue
		}
		ago := int(now.Sub(h.began) / time.Hour)
		if ago < len(d.Hours) {
			d.Hours[len(d.Hours)-1-ago] = h.Pair
		}
		if ago <= len(d.Hours) && h.began.YearDay() == local.YearDay() { // a day may have 25 hours
			d.Checked, d.Blocked = d.Checked+h.Checked, d.Blocked+h.Pair.Blocked
			d.Threats.add(h.Threats)
		}
	}
	return d
}

// Late is a name that devices asked for, and got, before a list of the service had it.
type Late struct {
	Name    string    `json:"name"`    // "": it is not kept, see look_back
	Client  string    `json:"client"`  // who asked; "": it is not kept
	Devices int       `json:"devices"` // that asked; with a Client 1
	Asked   time.Time `json:"asked"`   // the first of these questions, to the minute
	Listed  time.Time `json:"listed"`  // when this was found, after an update
	List    string    `json:"list"`
	Threat  string    `json:"threat"`
	Zones   string    `json:"zones"` // of the server block
	Named   bool      `json:"-"`     // pages may show the name
}

const (
	maxLate = 100            // that are kept
	lateFor = 24 * time.Hour // is how long they are kept
)

// ListedAs returns what a threat is listed as, in one word where there is one.
func ListedAs(threat lookup.Threat) string {
	if threat == lookup.SocialEngineering {
		return say.TitleOf("se-4b")
	}
	return threat.String()
}

// String says it in a sentence without its full stop. A date is said only where the two times do not
// have the same.
func (l Late) String() string {
	form := "15:04"
	if l.Asked.Local().Format(time.DateOnly) != l.Listed.Local().Format(time.DateOnly) {
		form = "2006-01-02 15:04"
	}
	asked, listed := l.Asked.Local().Format(form), l.Listed.Local().Format(form)
	if l.Name != "" && l.Client != "" {
		return fmt.Sprintf("%s asked for %s at %s, listed as %s at %s", l.Client, l.Name, asked, l.Threat, listed)
	}
	return fmt.Sprintf("%s asked at %s for a name that is listed as %s since %s", say.Count(l.Devices, "device", "devices"), asked, l.Threat, listed)
}

// ForPages returns names as pages may show them.
func ForPages(all []Late) []Late {
	all = slices.Clone(all)
	for i := range all {
		if l := &all[i]; !l.Named {
			l.Name, l.Client = "", ""
		}
	}
	return all
}

// Late keeps names that were listed late, for a day.
func (r *Recent) Late(all []Late) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range all[max(0, len(all)-maxLate):] {
		r.late = slices.Insert(r.late, 0, l)
	}
	r.late = r.late[:min(len(r.late), maxLate)]
}

// LastLate returns the names of the last day that were listed late, the last one first.
func (r *Recent) LastLate(now time.Time) []Late {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = slices.DeleteFunc(r.late, func(l Late) bool { return now.Sub(l.Listed) >= lateFor })
	return append([]Late{}, r.late...)
}
