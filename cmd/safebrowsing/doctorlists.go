package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// oldList is the age from which a list protects less than it looks.
const oldList = 24 * time.Hour

// protection tells what is in force, and what keeps the rest from being so.
func (e *examination) protection(o *Offline) {
	if o.Folder() == "" && len(o.Lists()) > 0 {
		e.tell(diagnosis{"lists", isSkipped, "they are in the memory of CoreDNS, see its log and metrics", ""})
		return
	}
	if len(o.Lists()) > 0 {
		e.tell(listsDiagnosis(o, time.Now()))
	}
	if hold := o.SearchHold(); hold.Active(time.Now()) {
		e.tell(diagnosis{"confirm", isProblem, text(fmt.Sprintf("confirmations are paused until %s (%v): suspected names pass", stamp(hold.Until), hold)), adviceOn(hold)})
	}
}

// listsDiagnosis tells how the lists are that a Corefile names.
func listsDiagnosis(o *Offline, now time.Time) diagnosis {
	all, err := updater.Status(o.Folder())
	if errors.Is(err, updater.ErrDamaged) {
		return diagnosis{"lists", isWarning, text(err.Error()), "CoreDNS sets it aside and asks half an hour later"}
	}
	entries, missing, old := 0, []string(nil), []string(nil)
	hold := o.FetchHold()
	apart := slices.ContainsFunc(o.Lists(), func(name string) bool { return statusOf(all, name).Err == nil })
	for _, name := range o.Lists() {
		s := statusOf(all, name)
		switch {
		case s.Err != nil && apart && s.Hold.Failures > 0 && s.Hold.Active(now): // others are in force: it is about this list
			hold = s.Hold
			missing = append(missing, fmt.Sprintf("%s (%v%s)", name, s.Hold, didYouMean(name)))
		case s.Err != nil:
			missing = append(missing, name)
		case !s.Updated.IsZero() && now.Sub(s.Updated) > oldList:
			old = append(old, name+" since "+stamp(s.Updated))
		}
		entries += s.Entries
	}
	next := ""
	if h := o.FetchHold(); h.Active(now) {
		next = fmt.Sprintf("; not asked before %s (%v)", stamp(h.Until), h)
	}
	held := len(o.Lists()) - len(missing)
	found := text(fmt.Sprintf("%d of %d in force", held, len(o.Lists())))
	switch {
	case len(missing) > 0 && hold.Failures > 0 && hold.Active(now):
		return diagnosis{"lists", isProblem, found + text(", not "+strings.Join(missing, ", ")+next), adviceOn(hold)}
	case len(missing) > 0:
		return diagnosis{"lists", isWarning, found + text(", not "+strings.Join(missing, ", ")+next),
			"CoreDNS fetches them within a minute of its start, or when it may ask again; safebrowsing update does so without it"}
	case len(old) > 0:
		return diagnosis{"lists", isProblem, found + text(", but not updated: "+strings.Join(old, ", ")+next), adviceOn(hold)}
	}
	return diagnosis{"lists", isOK, found + text(", "+count(entries, "entry", "entries")+next), ""}
}

// statusOf returns the status of a list, which is fs.ErrNotExist if nothing is known
// of it.
func statusOf(all []updater.ListStatus, name string) updater.ListStatus {
	i := slices.IndexFunc(all, func(s updater.ListStatus) bool { return s.Name == name })
	if i < 0 {
		return updater.ListStatus{Name: name, Err: fs.ErrNotExist}
	}
	return all[i]
}

// didYouMean asks whether another list was meant.
func didYouMean(name string) string {
	if near := protocol.NearestList(name); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// adviceOn says what would end a back-off.
func adviceOn(hold updater.Hold) text {
	switch {
	case hold.Failures == 0:
		return "nothing to do but to wait: it is the server's rule"
	case strings.Contains(hold.Cause, "status 400"), strings.Contains(hold.Cause, "status 404"):
		return "correct the key, the endpoint or the names in lists; a changed key is tried within a minute of the start, or of the change of api_key_file"
	case strings.Contains(hold.Cause, "status 401"), strings.Contains(hold.Cause, "status 403"):
		return "correct the key (or the endpoint): CoreDNS asks with another one within a minute of its start, or of the change of api_key_file"
	case strings.Contains(hold.Cause, "status 429"):
		return "the quota of the key is used up: raise it in the cloud console, or wait"
	}
	return "mend the cause; CoreDNS asks again by itself then"
}
