package relay

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The bounds of a list's history. A client with an older version gets a full update.
const (
	historyAge   = 48 * time.Hour
	historySteps = 1024

	// A partial update is worth its while only if it is much smaller than a full one, and
	// so is the history: half of the list's own memory, between these.
	minHistoryBytes = 64 << 10
	maxHistoryBytes = 4 << 20
	stepOverhead    = 256 // bytes of a step beside its entries
)

// change is the difference between two contents.
type change struct{ removed, added *prefixset.Set }

// step is a content that was replaced, by the content of the next step or, the last step, by
// the one in force.
type step struct {
	from  id
	until time.Time // when it was replaced
	change
}

// bytes returns the memory of a step.
func (s step) bytes() int { return stepOverhead + s.removed.Bytes() + s.added.Bytes() }

// changeBetween returns the change from one content to another.
func changeBetween(base, target runs, width int) (change, error) {
	gone, came := prefixset.NewBuilder(0), prefixset.NewBuilder(0)
	d := &differ{base: cursor{next: base}, target: cursor{next: target}, width: width}
	for {
		var err error
		switch what, run := d.next(); what {
		case ended:
			return change{gone.Set(), came.Set()}, nil
		case removed:
			err = gone.Add(run, width)
		case added:
			err = came.Add(run, width)
		}
		if err != nil {
			return change{}, err
		}
	}
}

// then returns the change that c and next make together: an entry that comes and goes, or
// goes and comes, is in neither set.
func (c change) then(next change, width int) (change, error) {
	gone, err := together(c.removed, next.added, next.removed, c.added, width)
	if err != nil {
		return change{}, err
	}
	came, err := together(c.added, next.removed, next.added, c.removed, width)
	return change{gone, came}, err
}

// together returns the entries of a that are not in notA, and those of b that are not in notB.
func together(a, notA, b, notB *prefixset.Set, width int) (*prefixset.Set, error) {
	rest := changedRuns(setRuns(b), setRuns(notB), none(), width)
	return collect(changedRuns(setRuns(a), setRuns(notA), rest, width), width, a.Len()+b.Len())
}

// changeOf returns the change that steps make together. There must be one at least.
func changeOf(steps []step, width int) (change, error) {
	if len(steps) == 1 {
		return steps[0].change, nil
	}
	half := len(steps) / 2 // pairs of equal size: each entry is read a logarithmic number of times
	first, err := changeOf(steps[:half], width)
	if err != nil {
		return change{}, err
	}
	second, err := changeOf(steps[half:], width)
	if err != nil {
		return change{}, err
	}
	return first.then(second, width)
}

// trimmed returns the steps that a list of listBytes keeps at now: the youngest.
func trimmed(steps []step, listBytes int, now time.Time) []step {
	left := min(max(listBytes/2, minHistoryBytes), maxHistoryBytes)
	from := len(steps)
	for from > 0 && len(steps)-from < historySteps {
		s := steps[from-1]
		if left -= s.bytes(); left < 0 || now.Sub(s.until) > historyAge {
			break
		}
		from--
	}
	return steps[from:len(steps):len(steps)]
}

// since returns the steps from the last time that a content was in force, nil if there are
// none.
func since(steps []step, from id) []step {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].from == from {
			return steps[i:]
		}
	}
	return nil
}
