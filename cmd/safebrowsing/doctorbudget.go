package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// lowBudget is the part of a budget from which it may not last for the day.
const lowBudget = 0.8

// budget examines how much of the budget of searches is left, if there is one.
func (e *examination) budget(o *block.Block, now time.Time) {
	perDay := o.Config.Budget
	if perDay == 0 {
		return
	}
	ledger := o.Stored.Count()
	e.tell(budgetDiagnosis(perDay, ledger, o.Stored.Uncounted, now))
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
	spent, left := ledger.Spent(now), ledger.Remaining(perDay, now)
	switch {
	case err != nil && left == 0:
		return diagnosis{"budget", isProblem, text(fmt.Sprintf("%v: no names are confirmed, and suspected names pass until %s", err, next)), "wait; or stop CoreDNS, delete the file and start CoreDNS: then the day begins with the whole budget"}
	case ledger.Hold(perDay, now).Active(now) && left > 0:
		hold := ledger.Hold(perDay, now)
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
