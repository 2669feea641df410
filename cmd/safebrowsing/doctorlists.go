package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// oldList is the age from which a list protects less than it looks.
const oldList = 24 * time.Hour

// protection tells what is in force, and what keeps the rest from being so.
func (e *examination) protection(o *safebrowsing.Offline) {
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
func listsDiagnosis(o *safebrowsing.Offline, now time.Time) diagnosis {
	all, err := updater.Status(o.Folder())
	if errors.Is(err, updater.ErrDamaged) {
		return diagnosis{"lists", isWarning, text(err.Error()), "CoreDNS sets it aside and asks half an hour later"}
	}
	entries, missing, old := 0, []string(nil), []string(nil)
	for _, name := range o.Lists() {
		i := slices.IndexFunc(all, func(s updater.ListStatus) bool { return s.Name == name && s.Err == nil })
		if i < 0 {
			missing = append(missing, name)
			continue
		}
		entries += all[i].Entries
		if updated := all[i].Updated; !updated.IsZero() && now.Sub(updated) > oldList {
			old = append(old, name+" since "+stamp(updated))
		}
	}
	hold := o.FetchHold()
	next := ""
	if hold.Active(now) {
		next = fmt.Sprintf("; not asked before %s (%v)", stamp(hold.Until), hold)
	}
	held := len(o.Lists()) - len(missing)
	switch {
	case len(missing) > 0 && hold.Failures > 0 && hold.Active(now):
		return diagnosis{"lists", isProblem, text(fmt.Sprintf("%d of %d in force, not %s%s", held, len(o.Lists()), strings.Join(missing, ", "), next)), adviceOn(hold)}
	case len(missing) > 0:
		return diagnosis{"lists", isWarning, text(fmt.Sprintf("%d of %d in force, not %s%s", held, len(o.Lists()), strings.Join(missing, ", "), next)),
			"CoreDNS fetches them within a minute of its start, or when it may ask again; safebrowsing update does so without it"}
	case len(old) > 0:
		return diagnosis{"lists", isProblem, text("in force, but not updated: " + strings.Join(old, ", ") + next), adviceOn(hold)}
	}
	return diagnosis{"lists", isOK, text(fmt.Sprintf("%d of %d in force, %s%s", held, held, count(entries, "entry", "entries"), next)), ""}
}

// adviceOn says what would end a back-off.
func adviceOn(hold updater.Hold) text {
	switch {
	case hold.Failures == 0:
		return "nothing to do but to wait: it is the server's rule"
	case strings.Contains(hold.Cause, "status 400"), strings.Contains(hold.Cause, "status 401"), strings.Contains(hold.Cause, "status 403"):
		return "correct the key (or the endpoint): CoreDNS asks with another one within a minute of its start, or of the change of api_key_file"
	case strings.Contains(hold.Cause, "status 429"):
		return "the quota of the key is used up: raise it in the cloud console, or wait"
	}
	return "mend the cause; CoreDNS asks again by itself then"
}
