package status

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// hour is for how long blocked queries are counted, and names are kept.
const hour = 60 // minutes

// maxNames is the most names that are kept.
const maxNames = 100

// Count is how many queries a list has blocked.
type Count struct {
	List string
	N    int
}

// Name is a name that was blocked. Who asked for it is not kept.
type Name struct {
	Name, List string
	N          int
	Last       time.Time
}

// Recent counts the queries that were blocked in the last hour, in memory only. The zero
// value is ready to use; it is safe for concurrent use.
type Recent struct {
	mu      sync.Mutex
	minutes [hour]minute
	names   []Name // the last one last
}

// minute counts the queries of one minute, by list.
type minute struct {
	number int64 // since 1970
	counts map[string]int
}

// Blocked counts a query that a list has blocked. name is "" if it must not be kept.
func (r *Recent) Blocked(list, name string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := now.Unix() / 60
	m := &r.minutes[number%hour]
	if m.number != number || m.counts == nil {
		*m = minute{number, make(map[string]int)}
	}
	m.counts[list]++
	if name != "" {
		r.keep(Name{Name: name, List: list, N: 1, Last: now})
	}
}

// keep keeps a name, in place of the oldest one if there are too many. The caller holds mu.
func (r *Recent) keep(n Name) {
	if i := slices.IndexFunc(r.names, func(other Name) bool { return other.Name == n.Name && other.List == n.List }); i >= 0 {
		n.N += r.names[i].N
		r.names = slices.Delete(r.names, i, i+1)
	} else if len(r.names) == maxNames {
		r.names = slices.Delete(r.names, 0, 1)
	}
	r.names = append(r.names, n)
}

// Hour returns the counts of the last hour, the highest first, and the names, the last one
// first. It forgets older names.
func (r *Recent) Hour(now time.Time) (counts []Count, names []Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := make(map[string]int)
	for _, m := range r.minutes {
		if age := now.Unix()/60 - m.number; age >= 0 && age < hour {
			for list, n := range m.counts {
				sum[list] += n
			}
		}
	}
	for list, n := range sum {
		counts = append(counts, Count{list, n})
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Or(b.N-a.N, cmp.Compare(a.List, b.List)) })
	r.names = slices.DeleteFunc(r.names, func(n Name) bool { return now.Sub(n.Last) >= hour*time.Minute })
	names = slices.Clone(r.names)
	slices.Reverse(names)
	return counts, names
}

// Forget forgets everything.
func (r *Recent) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minutes, r.names = [hour]minute{}, nil
}
