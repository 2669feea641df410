package engine

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// Service returns how the engine protects now. It is safe for concurrent use.
func (e *Engine) Service() status.Service {
	now, s := time.Now(), e.settings
	all := status.Service{
		Title: s.Protocol.Title, Address: s.Address(), Mode: s.Mode.String(), Folder: s.DB, Ending: s.Ending().Text(now), Ended: s.Ending().Over(now),
		Fetch: e.FetchHold(), Search: e.SearchHold(), Budget: s.Budget,
	}
	provider := e.Provider()
	all.Notice, all.Advisory = answer.Notice(provider), provider.Advisory
	if e.ledger != nil {
		all.Left, all.Spent, all.Paid = e.ledger.Remaining(s.Budget, now), e.ledger.Spent(now), s.Protocol.Paid
		all.InPart = status.SpentShares(e.ledger.Uses(), s.Budget, now)
	}
	e.reporter.mu.Lock()
	defer e.reporter.mu.Unlock()
	all.Follows = e.reporter.follows
	for _, name := range s.Stored() {
		l := e.reporter.lists[name]
		all.Lists = append(all.Lists, status.List{
			Name: name, Entries: l.Entries, Updated: l.Updated, Due: l.Due, Missing: l.Entries == 0 && l.Updated.IsZero(),
		})
	}
	return all
}
