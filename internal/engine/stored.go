package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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
