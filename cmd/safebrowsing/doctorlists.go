package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// protection says which lists are in force, and why the others are not.
func (e *examination) protection(o *block.Block) {
	if o.Config.DB == "" && len(o.Settings.Stored()) > 0 {
		e.tell(diagnosis{"lists", isSkipped, "only CoreDNS has them, in its memory: see its log and metrics", ""})
		return
	}
	if len(o.Settings.Stored()) > 0 {
		e.tell(listsDiagnosis(o, time.Now()))
	}
	if hold := o.Stored.SearchHold(); hold.Active(time.Now()) && hold.Budget == 0 { // budgetDiagnosis says so
		e.tell(diagnosis{"confirm", isProblem, text(fmt.Sprintf("confirmations are paused until %s (%v): suspected names pass", say.Time(hold.Until), hold)), adviceOn(o, hold)})
	}
}

// listsDiagnosis says which lists of a Corefile are in force, missing or old.
func listsDiagnosis(o *block.Block, now time.Time) diagnosis {
	lists, err := o.Stored.Lists()
	if errors.Is(err, updater.ErrDamaged) {
		return diagnosis{"lists", isWarning, text(err.Error()), "nothing: CoreDNS sets the file aside at its next start, and waits 30 minutes before its first request"}
	}
	entries, missing, old := 0, []string(nil), []string(nil)
	hold := o.Stored.FetchHold()
	apart := slices.ContainsFunc(lists, func(s updater.ListStatus) bool { return !s.Missing() })
	for _, s := range lists {
		name := s.Name
		switch {
		case s.Missing() && apart && s.Hold.Failures > 0 && s.Hold.Active(now): // others are in force: this list is the cause
			hold = s.Hold
			missing = append(missing, fmt.Sprintf("%s (%v%s)", name, s.Hold, didYouMean("; ", name)))
		case s.Missing():
			missing = append(missing, name)
		case s.Old(now):
			old = append(old, name+" since "+say.Time(s.Updated))
		}
		entries += s.Entries
	}
	next := ""
	if h := o.Stored.FetchHold(); h.Active(now) {
		next = fmt.Sprintf("; not asked before %s (%v)", say.Time(h.Until), h)
	}
	held := len(o.Settings.Stored()) - len(missing)
	found := text(fmt.Sprintf("%d of %d in force", held, len(o.Settings.Stored())))
	switch {
	case len(missing) > 0 && hold.Failures > 0 && hold.Active(now):
		return diagnosis{"lists", isProblem, found + text(", missing: "+strings.Join(missing, ", ")+next), adviceOn(o, hold)}
	case len(missing) > 0:
		return diagnosis{"lists", isWarning, found + text(", missing: "+strings.Join(missing, ", ")+next),
			"CoreDNS fetches them within a minute after its start, or as soon as it may ask again; without CoreDNS, safebrowsing update does so"}
	case len(old) > 0:
		return diagnosis{"lists", isProblem, found + text(", but not updated: "+strings.Join(old, ", ")+next), adviceOn(o, hold)}
	case hold.Failures > 0 && hold.Active(now):
		return diagnosis{"lists", isWarning, found + text(", "+say.Count(entries, "entry", "entries")+", but not updated at present"+next), adviceOn(o, hold)}
	}
	return diagnosis{"lists", isOK, found + text(", "+say.Count(entries, "entry", "entries")+next), ""}
}

// didYouMean suggests Google's lists whose names are similar to the given ones, or returns "".
func didYouMean(before string, names ...string) string {
	var all []string
	for _, name := range names {
		if near := protocol.NearestList(name); near != "" {
			all = append(all, near)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return before + "did you mean " + strings.Join(all, " and ") + "?"
}
