package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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

// withoutName returns what may be shown where names may not.
func (l Late) withoutName() Late {
	l.Name, l.Client = "", ""
	return l
}

// ForPages returns names as pages may show them.
func ForPages(all []Late) []Late {
	all = slices.Clone(all)
	for i, l := range all {
		if !l.Named {
			all[i] = l.withoutName()
		}
	}
	return all
}

// Late keeps names that were listed late, for a day.
func (r *Recent) Late(all []Late) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range all {
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
