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

// oldList is the age from which a list misses many new threats.
const oldList = 24 * time.Hour

// protection says which lists are in force, and why the others are not.
func (e *examination) protection(o *Offline) {
	if o.Folder() == "" && len(o.Lists()) > 0 {
		e.tell(diagnosis{"lists", isSkipped, "only CoreDNS has them, in its memory: see its log and metrics", ""})
		return
	}
	if len(o.Lists()) > 0 {
		e.tell(listsDiagnosis(o, time.Now()))
	}
	if hold := o.SearchHold(); hold.Active(time.Now()) && hold.Budget == 0 { // budgetDiagnosis says so
		e.tell(diagnosis{"confirm", isProblem, text(fmt.Sprintf("confirmations are paused until %s (%v): suspected names pass", stamp(hold.Until), hold)), adviceOn(o, hold)})
	}
}

// listsDiagnosis says which lists of a Corefile are in force, missing or old.
func listsDiagnosis(o *Offline, now time.Time) diagnosis {
	all, err := updater.Status(o.Folder())
	if errors.Is(err, updater.ErrDamaged) {
		return diagnosis{"lists", isWarning, text(err.Error()), "nothing: CoreDNS sets the file aside at its next start, and waits 30 minutes before its first request"}
	}
	entries, missing, old := 0, []string(nil), []string(nil)
	hold := o.FetchHold()
	apart := slices.ContainsFunc(o.Lists(), func(name string) bool { return statusOf(all, name).Err == nil })
	for _, name := range o.Lists() {
		s := statusOf(all, name)
		switch {
		case s.Err != nil && apart && s.Hold.Failures > 0 && s.Hold.Active(now): // others are in force: this list is the cause
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
		return diagnosis{"lists", isProblem, found + text(", missing: "+strings.Join(missing, ", ")+next), adviceOn(o, hold)}
	case len(missing) > 0:
		return diagnosis{"lists", isWarning, found + text(", missing: "+strings.Join(missing, ", ")+next),
			"CoreDNS fetches them within a minute after its start, or as soon as it may ask again; without CoreDNS, safebrowsing update does so"}
	case len(old) > 0:
		return diagnosis{"lists", isProblem, found + text(", but not updated: "+strings.Join(old, ", ")+next), adviceOn(o, hold)}
	case hold.Failures > 0 && hold.Active(now):
		return diagnosis{"lists", isWarning, found + text(", "+count(entries, "entry", "entries")+", but not updated at present"+next), adviceOn(o, hold)}
	}
	return diagnosis{"lists", isOK, found + text(", "+count(entries, "entry", "entries")+next), ""}
}

// statusOf returns the status of a list. Its Err is fs.ErrNotExist if the folder has none.
func statusOf(all []updater.ListStatus, name string) updater.ListStatus {
	i := slices.IndexFunc(all, func(s updater.ListStatus) bool { return s.Name == name })
	if i < 0 {
		return updater.ListStatus{Name: name, Err: fs.ErrNotExist}
	}
	return all[i]
}

// didYouMean suggests a list with a similar name, or returns "".
func didYouMean(name string) string {
	if near := protocol.NearestList(name); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
