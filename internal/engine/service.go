package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Service is what server blocks decide by: an Engine's, or what one has saved, see Read.
// Its fields do not change; it is safe for concurrent use.
type Service struct {
	Checker  *lookup.Checker
	Schedule *updater.Schedule // of requests to the server
	Shares   *lookup.Shares    // of the budget, or a relay's, for each client; nil: there is none
	Costs    status.Costs      // of the service: of each name that may be shown, or of each prefix at a relay

	settings Settings
	client   protocol.Client
	ledger   *updater.Ledger                                                  // counts searches; nil: no budget, or the count is in the memory of another process
	standing func() (lists []updater.ListStatus, follows bool, inPart string) // of Standing
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
		Fetch: holdOf(s.FetchHold(), now), Search: holdOf(s.SearchHold(), now), Lists: []status.List{}, Costly: []status.Costly{}, Advisory: advisory,
		Paid: set.Dialect().Paid,
	}
	if s.ledger != nil {
		all.Budget, all.Left, all.Spent = set.Budget, s.ledger.Remaining(set.Budget, now), s.ledger.Spent(now)
	}
	lists, follows, inPart := s.standing()
	all.InPart = cmp.Or(s.InPart(now), inPart, failing(s.SearchHold(), set.Google(), lists, now))
	for _, l := range lists {
		all.Lists = append(all.Lists, status.List{Name: l.Name, Title: say.TitleOf(l.Name), InForce: !l.Missing(), Old: l.Old(now), Entries: l.Entries, Updated: l.Updated, NotBefore: l.NotBefore})
	}
	all.Follows = follows
	all.Unknown = len(all.Lists) == 0 && len(set.Stored()) > 0
	return all
}

// failing says in a sentence that a pause of confirmations has ended, and that none has worked since; "": else. It may be over
// after an hour, if nobody has asked, and once Google has sent a list. A relay sends lists also while it cannot search.
func failing(h updater.Hold, google bool, lists []updater.ListStatus, now time.Time) string {
	came := func(l updater.ListStatus) bool { return google && l.Updated.After(h.Failed) }
	if h.Failures == 0 || h.Active(now) || h.Until.Sub(h.Failed) < 10*time.Second || now.Sub(h.Until) >= time.Hour || slices.ContainsFunc(lists, came) {
		return ""
	}
	return fmt.Sprintf("The last confirmation failed (%v): suspected names pass until one works.", h)
}

// InPart says in a sentence that clients were refused today because what is left is kept for
// others; "": none was.
func (s *Service) InPart(now time.Time) string {
	if s.ledger == nil {
		return ""
	}
	for _, u := range s.ledger.Uses() {
		if u.Date != now.Local().Format(time.DateOnly) || u.Refused == 0 {
			continue
		}
		return fmt.Sprintf("%s of the day's %d searches, and what others do not need: suspected names of these clients pass until more is free, at midnight at the latest. If %s for others, write \"budget %d 100%%\".",
			say.Count(u.Refused, "client has spent its share", "clients have spent their shares"), s.settings.Budget, say.Plural(u.Refused, "it forwards", "they forward"), s.settings.Budget)
	}
	return ""
}

// holdOf returns a hold of the updater if it is active, else the zero one.
func holdOf(h updater.Hold, now time.Time) status.Hold {
	if !h.Active(now) {
		return status.Hold{}
	}
	return status.Hold{Until: h.Until, Why: h.String(), Failures: h.Failures}
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
func Read(s Settings, secret string) (*Stored, error) { return read(s, secret, false, nil) }

// ReadToSearch is Read for a program that confirms many names: it keeps the clocks of searches and the
// count of the budget in the folder, as a CoreDNS does. firstContact is as in Edge.
func ReadToSearch(s Settings, secret string, firstContact func() time.Duration) (*Stored, error) {
	return read(s, secret, true, firstContact)
}

// read is Read, and with searches ReadToSearch.
func read(s Settings, secret string, searches bool, firstContact func() time.Duration) (*Stored, error) {
	database := new(lookup.Database)
	client, err := s.Client(secret, database, nil)
	if err != nil {
		return nil, err
	}
	all := &Stored{Service: Service{settings: s, client: client}}
	all.Lists = sync.OnceValues(all.readLists)
	all.standing = func() ([]updater.ListStatus, bool, string) {
		lists, _ := all.Lists()
		return lists, false, ""
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
		all.readFolder(database, s.Origin(secret), searches)
	}
	searcher := updater.Pace(client, all.Schedule, s.SearchRules(firstContact), unsaved)
	if searches && all.ledger != nil {
		searcher = all.ledger.Limit(searcher, s.Budget, unsaved)
	}
	if all.Checker, err = lookup.NewChecker(s.CheckerConfig(database, searcher)); err != nil {
		return nil, err
	}
	return all, nil
}

// unsaved says that a clock or the count cannot be saved.
func unsaved(e updater.Event) {
	if e.Kind == updater.StoreFailed {
		log.Warningf("%v", e.Err)
	}
}

// readFolder publishes the lists of the folder, and reads its schedule and its count, to keep them there
// if searches is set.
func (s *Stored) readFolder(database *lookup.Database, origin updater.Origin, searches bool) {
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
	readLedger, readSchedule := updater.ReadLedger, updater.ReadSchedule
	if searches {
		readLedger, readSchedule = updater.NewLedger, updater.NewSchedule
	}
	if s.settings.Budget > 0 {
		s.ledger, s.Uncounted = readLedger(store)
		s.ledger.Spread()
	}
	schedule, err := readSchedule(store)
	if err != nil {
		s.Problems = append(s.Problems, err)
	}
	if schedule != nil { // if the file is damaged, a schedule that waits
		s.Schedule = schedule
	}
}

// readLists implements Lists. The Err of a list is fs.ErrNotExist if the folder has none that is in force at this server.
func (s *Stored) readLists() (lists []updater.ListStatus, err error) {
	if s.settings.DB == "" {
		return nil, nil
	}
	all, err := updater.Status(s.settings.DB)
	origin := s.settings.Origin("") // of any key
	for _, name := range s.settings.Stored() {
		if i := slices.IndexFunc(all, func(l updater.ListStatus) bool { return l.Name == name }); i >= 0 {
			l := all[i]
			if l.Err == nil && !origin.Serves(l.Origin) {
				l.Err, l.Entries, l.Updated = fs.ErrNotExist, 0, time.Time{}
			}
			lists = append(lists, l)
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

// Close cancels confirmations, and waits until clocks and count are saved.
func (s *Stored) Close() {
	s.Checker.Close()
	s.Schedule.Flush()
	if s.ledger != nil {
		if err := s.ledger.Flush(); err != nil {
			unsaved(updater.Event{Kind: updater.StoreFailed, Err: err})
		}
	}
	s.client.Close()
}

// A program on this machine that asks to confirm prefixes has the share of one client, lookup.Program.

// Left returns how many searches a program on this machine may still cause today, or -1 if there is no
// budget.
func (s *Service) Left(now time.Time) int {
	if s.Shares != nil {
		if b, known := s.Shares.For(lookup.Program, now); known {
			return b.Left
		}
	}
	if s.ledger == nil {
		return -1
	}
	return s.ledger.Remaining(s.settings.Budget, now)
}

// Confirm asks the server about prefixes of 4 bytes that lists here hold, after all queries that wait,
// within the budget and the share of one client. It returns the answers in the order of the prefixes,
// with the threats only that block here, and how many searches were sent. It waits until ctx ends, and
// longer for the answer to none. The error says that a query still waited then; nothing was sent. Else
// answers have their own.
func (s *Service) Confirm(ctx context.Context, prefixes []lookup.Prefix) (answers []lookup.PrefixAnswer, searches int, err error) {
	if err := s.Checker.Idle(ctx); err != nil {
		return nil, 0, err
	}
	var sent atomic.Int64
	share := lookup.AdmitBy(nil, s.Shares, lookup.Program).All()
	answers, _ = s.Checker.Search(ctx, prefixes, false, func(n int) (admitted int, refund func(), err error) {
		admitted, back := n, func() {}
		if share != nil {
			admitted, back, err = share(n)
		}
		sent.Add(int64(admitted))
		return admitted, func() { sent.Add(-1); back() }, err
	}, nil)
	threats := cmp.Or(protocol.ThreatsOf(strings.Fields(s.settings.Lists)), lookup.AllThreats)
	for i := range answers {
		answers[i].Threats = blocking(answers[i].Threats, threats)
	}
	return answers, int(sent.Load()), nil
}

// blocking returns the full hashes with one of the threats.
func blocking(all []lookup.ThreatHash, threats lookup.Threats) (kept []lookup.ThreatHash) {
	for _, t := range all {
		if t.Threats &= threats; t.Threats != 0 {
			kept = append(kept, t)
		}
	}
	return kept
}
