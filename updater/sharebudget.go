package updater

import "encoding/json"

// The count of searches in a Shared. The file of the folder stays as it is without one.

// partAlone is the part of the rest of a budget that a process may spend while it cannot reach
// the others: they may do the same. The relays of a network are few.
const partAlone = 4

// share plans an update on the higher count of the file and the document, and writes it to the
// document. If that cannot be reached it returns an error, and the process goes on with a part
// of the budget.
func (l *Ledger) share(c *budgetChange, found budgetDays, unknown error, perDay int, reserve bool) error {
	shared := c.store.shared
	if shared == nil {
		return errNotHeld
	}
	name := c.store.origin.budgetFile()
	last, _ := shared.Read(name)
	err := shared.Update(name, func(raw []byte) ([]byte, error) {
		all := found
		if common, err := parseBudget(raw); err == nil {
			all = all.merged(common)
		}
		l.mu.Lock()
		l.alone = false
		l.mu.Unlock()
		l.plan(c, all, unknown, perDay, reserve)
		return json.Marshal(c.next)
	})
	if err == nil {
		return nil
	}
	spent := 0
	today, _ := found.on(dateOf(l.clock()))
	if common, err := parseBudget(last); err == nil {
		common, _ = common.on(today.Day)
		spent = common.spent()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alone {
		l.alone, l.common = true, spent
	}
	return err
}

// allowedOf returns how many searches of a day this process may know to be spent and still spend
// another one, at least one more than common. common are those that all processes had spent when the others were last reached.
func allowedOf(perDay, common int, alone bool) int {
	if !alone {
		return perDay
	}
	return common + (max(0, perDay-common)+partAlone-1)/partAlone
}
