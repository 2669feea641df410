package engine

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Service is what server blocks decide by: that of an Engine, or what one has saved, see Read.
// Its fields do not change; it is safe for concurrent use.
type Service struct {
	Checker  *lookup.Checker
	Schedule *updater.Schedule // of requests to the server
	Shares   *lookup.Shares    // of the budget, or of that of a relay, for each client; nil: there is none

	settings Settings
	client   protocol.Client
	ledger   *updater.Ledger                                   // counts searches; nil: no budget, or the count is in the memory of another process
	standing func() (lists []updater.ListStatus, follows bool) // of Standing
}

// FetchHold returns why and until when no lists are fetched.
func (s *Service) FetchHold() updater.Hold { return s.Schedule.FetchHold(s.settings.Stored()) }

// SearchHold returns why and until when no names are confirmed: because of the schedule
// or of the budget.
func (s *Service) SearchHold() updater.Hold {
	hold := s.Schedule.SearchHold()
	if s.ledger == nil {
		return hold
	}
	if spent := s.ledger.Hold(s.settings.Budget, time.Now()); spent.Until.After(hold.Until) {
		return spent
	}
	return hold
}

// Provider returns what Google calls the service that provides what the server says, and the URL of
// its advisory. Both are "" if it is not Google's.
func (s *Service) Provider() (service, advisory string) {
	provider := s.settings.ProviderOf(s.client, s.Schedule)
	return provider.Service, provider.Advisory
}

// Standing returns how the service protects now.
func (s *Service) Standing(now time.Time) status.Service {
	set := s.settings
	_, advisory := s.Provider()
	all := status.Service{
		Title: set.Dialect().Title, Address: set.Address(), Mode: set.Mode.String(), Folder: set.DB, Ending: set.Ending().Text(now), Ended: set.Ending().Over(now),
		Fetch: status.HoldOf(s.FetchHold(), now), Search: status.HoldOf(s.SearchHold(), now), Lists: []status.List{}, Costly: []status.Costly{}, Advisory: advisory,
	}
	if s.ledger != nil {
		all.Budget, all.Left, all.Spent, all.Paid = set.Budget, s.ledger.Remaining(set.Budget, now), s.ledger.Spent(now), set.Dialect().Paid
		all.InPart = status.SpentShares(s.ledger.Uses(), set.Budget, now)
	}
	lists, follows := s.standing()
	for _, l := range lists {
		all.Lists = append(all.Lists, status.ListOf(l, now))
	}
	all.Follows = follows
	all.Unknown = len(all.Lists) == 0 && len(set.Stored()) > 0
	return all
}
