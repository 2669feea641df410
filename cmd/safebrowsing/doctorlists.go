package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
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
	switch {
	case errors.Is(err, updater.ErrDamaged):
		return diagnosis{"lists", isWarning, text(err.Error()), "nothing: CoreDNS sets the file aside at its next start, and waits 30 minutes before its first request"}
	case err != nil: // there may be lists
		return diagnosis{"lists", isSkipped, text(err.Error()), "run this command as the user of CoreDNS, or with sudo"}
	}
	entries, missing, old := 0, []string(nil), []string(nil)
	h := o.Stored.FetchHold()
	hold := h
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
	if h.Active(now) {
		next = fmt.Sprintf("; not asked before %s (%v)", say.Time(h.Until), h)
	}
	held := len(o.Settings.Stored()) - len(missing)
	found := text(fmt.Sprintf("%d of %d in force", held, len(o.Settings.Stored())))
	failing := hold.Failures > 0 && hold.Active(now)
	advice := text("CoreDNS fetches them within a minute after its start, or as soon as it may ask again; without CoreDNS, safebrowsing update does so")
	if failing {
		advice = adviceOn(o, hold)
	}
	switch {
	case len(missing) > 0:
		status := map[bool]string{true: isProblem, false: isWarning}[failing]
		return diagnosis{"lists", status, found + text(", missing: "+strings.Join(missing, ", ")+next), advice}
	case len(old) > 0:
		return diagnosis{"lists", isProblem, found + text(", but not updated: "+strings.Join(old, ", ")+next), advice}
	case failing:
		return diagnosis{"lists", isWarning, found + text(", "+say.Count(entries, "entry", "entries")+", but not updated at present"+next), advice}
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

// ownLists examines the operator's own lists of all server blocks, each once.
func (e *examination) ownLists() {
	seen := make(map[string]bool)
	for _, b := range ours(e.blocks) {
		for _, s := range b.OwnLists() {
			if which := fmt.Sprint(s.Allow, " ", s.Path); s.InCorefile || !seen[which] {
				seen[which] = true
				e.ownList(b.Block, s)
			}
		}
	}
}

// ownList prints the diagnosis of a list. It skips the hosts of the Corefile unless some of
// them have expired.
func (e *examination) ownList(o *block.Block, s ownlist.State) {
	if s.InCorefile && s.Ended == 0 {
		return
	}
	d := ownListDiagnosis(s)
	if e.answers && d.Status != isOK && s.Nothing() != "" {
		d.Text += "; until a restart CoreDNS goes by what it read before, if anything"
	}
	if needed := o.BlocksNeeded(s.Named); !s.Allow && len(needed.Names) > 0 {
		d.Text += text("; " + needed.String())
		if !needed.Pass && d.Status == isOK {
			d.Status, d.Advice = isWarning, text(needed.Advice())
		}
	}
	for _, c := range o.Config.Fetches() {
		if s.Fetched && s.Path == c.Name() {
			d = byURLDiagnosis(d, c, time.Now())
		}
	}
	e.tell(d)
}

// ownListDiagnosis says what a list does and which of its lines do not work. Published lists
// often have unsupported lines; they are counted but are not a warning.
func ownListDiagnosis(s ownlist.State) diagnosis {
	does, name := "blocks", s.Path
	if s.Allow {
		does = "allows"
	}
	if s.InCorefile {
		name = "the Corefile itself"
	}
	changed := ""
	if !s.Modified.IsZero() {
		changed = ", last changed " + say.Time(s.Modified)
	}
	remarks := strings.Join(append([]string{""}, s.Remarks()...), "; ")
	if nothing := s.Nothing(); nothing != "" {
		d := diagnosis{"own list", isProblem, text(fmt.Sprintf("%s %s nothing: it %s%s%s", name, does, nothing, changed, remarks)), text(cmp.Or(s.Cure, "replace it with a list, or remove it from the Corefile"))}
		switch {
		case s.Idle():
			d.Status, d.Advice = isOK, ""
		case s.Allow:
			d.Status = isWarning
		}
		return d
	}
	for _, remark := range []string{s.Wide.String(), s.LeftOutRemark()} {
		if remark != "" {
			remarks += "; " + remark
		}
	}
	d := diagnosis{"own list", isWarning, text(fmt.Sprintf("%s %s %s%s%s", name, does, say.Count(s.InForce(), "name", "names"), changed, remarks)), ""}
	switch {
	case s.Wide.String() != "":
		d.Advice = "delete the lines that match very many names, unless you want them"
	case s.Bad.Count > 0:
		d.Advice = "correct the lines that are not list entries"
	case s.Elsewhere.Count > 0:
		d.Advice = "give the names the address 0.0.0.0 if you want to block them"
	case s.Ended > 0:
		d.Advice = "delete the entries that have ended, or give them a later date"
	default:
		d.Status = isOK
	}
	return d
}

// lateFetch is how long after its time a fetch is late: CoreDNS does not run.
const lateFetch = time.Hour

// byURLDiagnosis adds to the diagnosis of a list what CoreDNS saved about its fetches.
func byURLDiagnosis(d diagnosis, c ownlist.URLConfig, now time.Time) diagnosis {
	if c.DB == "" {
		return diagnosis{d.Check, isSkipped, text(c.Name() + ": only CoreDNS has it, in a temporary file: see its log and metrics"), ""}
	}
	s, err := ownlist.ReadURLState(c)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return diagnosis{d.Check, isWarning, text(err.Error()), "run this command as the user of CoreDNS, or with sudo"}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return diagnosis{d.Check, isWarning, text(err.Error()), "nothing: CoreDNS fetches the list again"}
	case s.Changed.IsZero() && s.Failing():
		return diagnosis{d.Check, isProblem, text(fmt.Sprintf("%s has no effect: it was never fetched. %s; next attempt %s", c.Name(), s.Error, say.Time(s.Next))),
			"open the URL in a browser, and correct it in the Corefile if it does not lead to a list; else look at the network"}
	case s.Changed.IsZero():
		return diagnosis{d.Check, isWarning, text(c.Name() + " has no effect: it has not been fetched yet"), "start CoreDNS: it fetches the list at once"}
	}
	d.Text += text(fmt.Sprintf("; fetched %s, next fetch %s", say.Time(cmp.Or(s.Checked, s.Changed)), say.Time(s.Next)))
	advice := text("")
	switch {
	case s.Failing():
		d.Text += text(fmt.Sprintf("; not updated since %s: %s", say.Time(s.Since), s.Error))
		advice = "open the URL in a browser, and correct it in the Corefile if it does not lead to a list; else look at the network"
	case now.Sub(s.Next) > lateFetch:
		advice = "start CoreDNS: the next fetch is late"
	}
	if advice != "" && d.Status == isOK {
		d.Status, d.Advice = isWarning, advice
	}
	return d
}

// lowBudget is the part of a budget from which it may not last for the day.
const lowBudget = 0.8

// budget examines how much of the budget of searches is left, if there is one.
func (e *examination) budget(o *block.Block, now time.Time) {
	perDay := o.Config.Budget
	if perDay == 0 {
		return
	}
	e.tell(budgetDiagnosis(perDay, o.Stored.Count(), o.Stored.Uncounted, now))
	if told := o.Stored.InPart(now); told != "" {
		e.tell(diagnosis{"share", isWarning, text("in part: " + told), text(fmt.Sprintf("write \"budget %d 100%%\" if one client forwards for others", perDay))})
	}
}

// unlimited warns of searches that cost money without a budget.
func (e *examination) unlimited(o *block.Block) {
	if o.Config.Budget == 0 && o.Settings.Dialect().Paid {
		e.tell(diagnosis{"budget", isWarning, "unlimited: each search costs money, and one client that asks for random names causes as many as limit allows",
			"replace budget unlimited by budget COUNT, the most searches a day"})
	}
}

// budgetDiagnosis says how much of a budget is left today. A nil ledger means that db is
// off.
func budgetDiagnosis(perDay int, ledger *updater.Ledger, err error, now time.Time) diagnosis {
	each, next := searches(perDay), say.Time(updater.NextDay(now))
	if ledger == nil {
		return diagnosis{"budget", isSkipped, text(fmt.Sprintf("%s a day; only CoreDNS knows how many are spent: see the metric coredns_safebrowsing_budget_remaining", each)), ""}
	}
	spent, left, hold := ledger.Spent(now), ledger.Remaining(perDay, now), ledger.Hold(perDay, now)
	switch {
	case err != nil && left == 0:
		return diagnosis{"budget", isProblem, text(fmt.Sprintf("%v: no names are confirmed, and suspected names pass until %s", err, next)), "wait; or stop CoreDNS, delete the file and start CoreDNS: then the day begins with the whole budget"}
	case hold.Active(now) && left > 0:
		return diagnosis{"budget", isWarning, text(fmt.Sprintf("in part: %v, and %d are left for later today: suspected names pass until %s", hold, left, say.Time(hold.Until))), "raise budget in the Corefile if this happens often"}
	case left == 0:
		return diagnosis{"budget", isProblem, text(fmt.Sprintf("all of the %s of today are spent: suspected names pass until %s", each, next)), "raise budget in the Corefile, or wait"}
	}
	found := text(fmt.Sprintf("%d of %s of today are spent or reserved; the next day begins at %s", spent, each, next))
	if float64(spent) >= lowBudget*float64(perDay) {
		return diagnosis{"budget", isWarning, found, "raise budget in the Corefile if this happens often"}
	}
	return diagnosis{"budget", isOK, found, ""}
}

// searches returns a number of searches with its word.
func searches(n int) string { return say.Count(n, "search", "searches") }

// extendedList is the list of Web Risk that is less certain than the others.
const extendedList = "se-ext-4b"

// extended warns of server blocks that block by the list se-ext-4b.
func (e *examination) extended() {
	for _, b := range ours(e.blocks) {
		if !b.Config.Online || b.Config.Monitor || !slices.Contains(b.Settings.Stored(), extendedList) {
			continue
		}
		e.tell(diagnosis{extendedList, isWarning, text(fmt.Sprintf("%s blocks the names of this list, and Google says that up to one in ten of them is harmless", b.stanza())),
			"begin with monitor, and look at what the log would have blocked"})
	}
}

// pauses warns of the pauses that are in force, each once.
func (e *examination) pauses(now time.Time) {
	seen := make(map[string]bool)
	for _, b := range ours(e.blocks) {
		if b.Config.PauseFolder() == "" {
			continue
		}
		file := block.PauseFile(b.Config.PauseFolder())
		if seen[file] || files.RegularOrNone(file) != nil {
			continue
		}
		seen[file] = true
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		all, err := block.ParsePauses(raw)
		if err != nil {
			e.tell(diagnosis{"pause", isWarning, text(fmt.Sprintf("%s pauses nothing: %v", file, err)), "start CoreDNS, and run safebrowsing resume, which writes it again"})
		}
		for _, p := range all {
			if p.Active(now) {
				e.tell(pauseDiagnosis(p, file))
			}
		}
	}
}

func pauseDiagnosis(p block.Pause, file string) diagnosis {
	restart := ", or until CoreDNS is restarted"
	if p.Keep {
		restart = ""
	}
	return diagnosis{"pause", isWarning, text(fmt.Sprintf("%s block nothing until %s%s, by %s", p.Where(), say.Time(p.Until), restart, file)), "safebrowsing resume ends it when CoreDNS runs"}
}
