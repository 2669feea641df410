package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
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

// Stored is a Service as a CoreDNS has saved it in the folder of its lists. Only confirmations
// send requests.
type Stored struct {
	Service
	Problems  []error                              // about each list that is missing or damaged, and so finds nothing
	Uncounted error                                // why the count of searches is not known; nil: it is, or there is no budget
	Lists     func() ([]updater.ListStatus, error) // the lists that CoreDNS keeps, see updater.Status; they are read once
}

// Read reads what is in the folder, and changes nothing there. The caller must Close the result.
func Read(s Settings, secret string) (*Stored, error) {
	database := new(lookup.Database)
	client, err := s.Client(secret, database, nil)
	if err != nil {
		return nil, err
	}
	all := &Stored{Service: Service{settings: s, client: client}}
	all.Lists = sync.OnceValues(all.readLists)
	all.standing = func() ([]updater.ListStatus, bool) {
		lists, _ := all.Lists()
		return lists, false
	}
	if all.Schedule, err = updater.NewSchedule(nil); err != nil {
		return nil, err
	}
	if s.Budget > 0 && s.DB != "" { // of a folder that does not exist yet
		if all.ledger, err = updater.NewLedger(nil); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(s.DB); s.DB != "" && err == nil {
		all.readFolder(database, s.Origin(secret))
	}
	searcher := updater.Pace(client, all.Schedule, s.SearchRules(nil), func(updater.Event) {})
	if all.Checker, err = lookup.NewChecker(s.CheckerConfig(database, searcher)); err != nil {
		return nil, err
	}
	return all, nil
}

// readFolder publishes the lists of the folder, and reads its schedule and its count.
func (s *Stored) readFolder(database *lookup.Database, origin updater.Origin) {
	store, err := updater.OpenStore(s.settings.DB, origin)
	if err != nil {
		s.Problems = append(s.Problems, err)
		return
	}
	var lists []lookup.List
	for _, name := range s.settings.Stored() {
		l, err := store.ReadList(name)
		switch {
		case err == nil:
			lists = append(lists, lookup.List{Name: name, Version: l.Version, Set: l.Set, LikelySafe: name == protocol.GlobalCache})
		case errors.Is(err, fs.ErrNotExist):
			s.Problems = append(s.Problems, fmt.Errorf("list %s has not been fetched yet", name))
		default:
			s.Problems = append(s.Problems, err)
		}
	}
	database.Publish(lists)
	if s.settings.Budget > 0 {
		s.ledger, s.Uncounted = updater.ReadLedger(store)
	}
	schedule, err := updater.ReadSchedule(store)
	if err != nil {
		s.Problems = append(s.Problems, err)
	}
	if schedule != nil { // if the file is damaged, a schedule that waits
		s.Schedule = schedule
	}
}

// readLists implements Lists. The Err of a list is fs.ErrNotExist if the folder has none.
func (s *Stored) readLists() (lists []updater.ListStatus, err error) {
	if s.settings.DB == "" {
		return nil, nil
	}
	all, err := updater.Status(s.settings.DB)
	for _, name := range s.settings.Stored() {
		if i := slices.IndexFunc(all, func(l updater.ListStatus) bool { return l.Name == name }); i >= 0 {
			lists = append(lists, all[i])
		} else {
			lists = append(lists, updater.ListStatus{Name: name, Err: fs.ErrNotExist})
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return lists, err
}

// Count returns the count of searches that CoreDNS saved last; nil: there is none.
func (s *Stored) Count() *updater.Ledger { return s.ledger }

// Close cancels confirmations.
func (s *Stored) Close() {
	s.Checker.Close()
	s.client.Close()
}
