package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// log writes the lines of engines.
var log = say.NewLog(clog.NewWithPlugin(say.Plugin))

// reporter turns the events of an engine into log lines and metrics: one line when
// a state begins and one when it ends. It is safe for concurrent use.
type reporter struct {
	settings Settings
	schedule *updater.Schedule       // set before all events but the store's opening
	ledger   *updater.Ledger         // nil: no budget; set with schedule
	ready    func()                  // called when the engine becomes ready
	shares   bool                    // other machines share the lists; set before all events
	changed  func()                  // called when lists may have changed; set before all events
	inTheWay func(dir string) string // files.InTheWay; tests replace it

	mu           sync.Mutex
	started      bool                     // the line of the start has been written
	again        bool                     // the next start only restarts the updater with another token
	follows      bool                     // another process keeps the lists fresh
	lists        map[string]updater.Event // the last event of each
	unsaved      map[string]bool          // lists that could not be saved; "" is the schedule
	unreadable   map[string]string        // the last line about what could not be read, by the List of the event
	troubled     map[string]string        // lists that are not updated, and why, as logged
	troubleSince time.Time
	searching    searchState
	unanswered   time.Time       // when a relay last had no answer about some names, as logged; zero: it has
	unknown      error           // why, with unanswered
	refusedLists map[string]bool // as logged
	left         map[string]bool // endpoints that others stand in for

	abandoned atomic.Bool // nothing is reported any more
}

// searchState is how confirmations are doing, as it has been logged.
type searchState uint8

const (
	searchesWork  searchState = iota
	searchesRetry             // with another key than the one that failed
	searchesFail
	searchesPaused
)

func newReporter(s Settings, ready func()) *reporter {
	return &reporter{settings: s, ready: ready, changed: func() {}, inTheWay: files.InTheWay, lists: make(map[string]updater.Event), unsaved: make(map[string]bool), unreadable: make(map[string]string), refusedLists: make(map[string]bool), left: make(map[string]bool), troubled: make(map[string]string)}
}

// report implements what updater.Config.Report asks for.
func (r *reporter) report(e updater.Event) {
	if r.abandoned.Load() {
		return
	}
	r.measure(e)
	inTheWay := ""
	if e.Kind == updater.StoreFailed && e.List != updater.BudgetFile { // without mu: the disk may hang. A search reports about the count
		inTheWay = r.inTheWay(r.settings.DB)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case updater.Loaded:
		r.loaded(e)
	case updater.LoadFailed:
		r.unread(e)
	case updater.StartsAnew:
		log.Infof("List %s was fetched by another protocol. It stays in force until it has been fetched in full", e.List)
	case updater.LockBusy:
		r.follows = true
		r.start(e.Kind)
		r.ready()
	case updater.LeaseBusy:
		if !r.started { // later the relay says who fetches
			r.start(e.Kind)
		}
	case updater.FollowFailed:
		log.Warningf("Cannot take over lists that another relay has fetched: %v. %s; it is tried again", e.Err, r.stays(nil))
	case updater.Started:
		r.follows = false
		r.start(e.Kind)
	case updater.Fetched:
		r.fetched(e)
	case updater.ListUnchanged:
		delete(r.refusedLists, e.List)
	case updater.ListUpdated:
		delete(r.refusedLists, e.List)
		log.Infof("List %s now has %s, next update not before %s", e.List, say.Count(e.Entries, "entry", "entries"), say.Time(e.Due))
	case updater.ListRejected:
		log.Errorf("Update of list %s rejected: %v. The list stays in force as it was, with %s. It is fetched again in full, not before %s", e.List, e.Err, say.Count(e.Entries, "entry", "entries"), say.Time(e.Due))
	case updater.ListRefused:
		r.refused(e)
	case updater.BatchRefused:
		log.Debugf("The server refused the request for %s: %v. Each list is asked for by itself", e.List, e.Err)
	case updater.LongWait:
		r.longWait(e)
	case updater.StoreFailed:
		r.storeFailed(e, inTheWay)
	case updater.Stored:
		r.stored(e.List)
	case updater.WokeUp:
		log.Info("Woke up from a suspend")
	case updater.FirstContact:
		r.ready()
	case updater.Searched:
		r.searched(e.Err)
	case updater.BudgetLow:
		log.Warningf("%d of the day's %s are spent. When all are spent, suspected names pass until %s. Raise budget if this happens often", e.Spent, say.Count(e.Budget, "search", "searches"), say.Time(e.Due))
	case updater.BudgetSpent:
		r.budgetSpent(e)
	case updater.BudgetPaused:
		r.budgetPaused(e)
	case updater.BudgetRenewed:
		log.Infof("Names are confirmed again, with the new day's budget of %s", say.Count(e.Budget, "search", "searches"))
	}
}

// unread says what could not be read from the folder, once, and what that costs.
func (r *reporter) unread(e updater.Event) {
	line := fmt.Sprintf("Cannot read what was saved: %v", e.Err) // of the schedule it says how long requests wait
	switch e.List {
	case "":
	case updater.BudgetFile:
		line += ". To begin the day with the whole budget, stop CoreDNS and delete the file"
	default:
		line += ". The list is fetched again"
	}
	if r.unreadable[e.List] != line {
		r.unreadable[e.List] = line
		log.Errorf("%s", line)
	}
}

// budgetSpent says that searches end for the day, and why.
func (r *reporter) budgetSpent(e updater.Event) {
	why, cure := fmt.Sprintf("The day's budget of %s is spent", say.Count(e.Budget, "search", "searches")), "Raise budget to confirm more names a day"
	if e.Err != nil {
		why, cure = "No names are confirmed: "+e.Err.Error(), "To begin the day with the whole budget, stop CoreDNS and delete the file"
	}
	log.Warningf("%s. Suspected names pass until %s. %s", why, say.Time(e.Due), cure)
}

// budgetPaused says that searches end for a while, and why.
func (r *reporter) budgetPaused(e updater.Event) {
	cure := "Raise budget if this happens often; find out who asks"
	if e.Hold.Portion == updater.OneAlone {
		cure = "Repair the way to Redis: then all of the budget can be spent"
	}
	log.Warningf("In part: %v (%d today). Suspected names pass until %s, for all clients. %s", e.Hold, e.Spent, say.Time(e.Due), cure)
}

// loaded logs a list that another process has fetched. The line of the start has the
// lists that were loaded before it.
func (r *reporter) loaded(e updater.Event) {
	switch {
	case r.started && r.shares:
		log.Infof("List %s now has %s, fetched by another relay at %s", e.List, say.Count(e.Entries, "entry", "entries"), say.Time(e.Updated))
	case r.started:
		log.Infof("List %s now has %s, fetched by the process that keeps %s fresh at %s", e.List, say.Count(e.Entries, "entry", "entries"), r.settings.DB, say.Time(e.Updated))
	}
}

// fetched logs when updates of lists begin to fail and when they work again. It does
// not log a retry that fails in the same way.
func (r *reporter) fetched(e updater.Event) {
	if e.Err == nil {
		r.answered(e.List)
		return
	}
	kind := outcomeOf(e.Err)
	if status, ok := errors.AsType[*updater.StatusError](e.Err); ok {
		kind = status.Error()
	} else if away, ok := errors.AsType[*updater.NotSentError](e.Err); ok {
		if kind = "not sent"; away.Reached {
			kind = "not accepted"
		}
	}
	first, known := len(r.troubled) == 0, slices.Contains(slices.Collect(maps.Values(r.troubled)), kind)
	for name := range strings.SplitSeq(e.List, ", ") {
		r.troubled[name] = kind
	}
	if known {
		log.Debugf("Lists %s are still not updated, next try not before %s: %v", e.List, say.Time(e.Due), e.Err)
		return
	}
	if first {
		r.troubleSince = time.Now()
	}
	log.Errorf("Cannot update lists %s: %v. %s. Next try not before %s%s%s", e.List, e.Err, r.stays(e.Err), say.Time(e.Due), apart(e), r.hint(e.Err, e.Due))
}

// rekeyed begins anew with another key: its first failure is a line, also if it is the same as with the key before.
func (r *reporter) rekeyed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.troubled {
		r.troubled[name] = ""
	}
	clear(r.refusedLists)
	if r.searching != searchesWork {
		r.searching = searchesRetry
	}
}

// answered notes lists that the server has answered about: trouble ends when the last list's trouble ends.
func (r *reporter) answered(lists string) {
	trouble := len(r.troubled) > 0
	for name := range strings.SplitSeq(lists, ", ") {
		delete(r.troubled, name)
	}
	if trouble && len(r.troubled) == 0 {
		log.Infof("Lists are updated again, after trouble since %s", say.Time(r.troubleSince))
	}
}

// stays says what protects while lists are not updated because of err. The caller holds mu.
func (r *reporter) stays(err error) string {
	if slices.ContainsFunc(r.settings.Stored(), func(name string) bool { return r.lists[name].Entries > 0 || !r.lists[name].Updated.IsZero() }) {
		return "The lists in force stay in force"
	}
	none := "NO list is in force: " + r.settings.Dialect().Service + " blocks nothing until the first update"
	if away, ok := errors.AsType[*updater.NotSentError](err); ok && !away.Reached {
		none += ", which comes soon after the server can be reached"
	}
	return none
}

// apart says what follows when a request for several lists is refused.
func apart(e updater.Event) string {
	status, ok := errors.AsType[*updater.StatusError](e.Err)
	if !ok || status.NoKey() || status.Code != http.StatusBadRequest && status.Code != http.StatusNotFound {
		return ""
	}
	return ": then each list is requested by itself, to find the one that is refused"
}

// refused logs a list that the server refuses. It does not log retries, until the list
// has been updated once.
func (r *reporter) refused(e updater.Event) {
	r.answered(e.List) // to be refused is a state of its own
	if r.refusedLists[e.List] {
		log.Debugf("List %s is still refused, next try not before %s: %v", e.List, say.Time(e.Due), e.Err)
		return
	}
	r.refusedLists[e.List] = true
	meant := "."
	if near := protocol.NearestList(e.List); near != "" {
		meant = fmt.Sprintf(". Did you mean %s?", near)
	}
	if e.List == protocol.GlobalCache {
		meant = ". Mode realtime acts as mode local until it is there: start the relay with -realtime, or write mode local."
	}
	log.Errorf("The server refuses list %s: %v%s Other lists are asked for without it. This list has %s in force. Next try not before %s%s",
		e.List, e.Err, meant, say.Count(e.Entries, "entry", "entries"), say.Time(e.Due), r.hint(e.Err, e.Due))
}

// longWait logs a minimum wait that is longer than those that servers are known to
// send.
func (r *reporter) longWait(e updater.Event) {
	if e.List == "" {
		log.Warningf("The server asks for a minimum wait of %s between confirmations. It is obeyed: suspected names pass until %s. If you run the endpoint, correct it", e.Wait, say.Time(e.Due))
		return
	}
	log.Warningf("The server asks for a minimum wait of %s for lists %s. It is obeyed: the lists in force stay in force and are not updated before %s. If you run the endpoint, correct it", e.Wait, e.List, say.Time(e.Due))
}

// storeFailed and stored log when the directory cannot be written and when it can be
// written again.
func (r *reporter) storeFailed(e updater.Event, inTheWay string) {
	if errors.Is(e.Err, updater.ErrNoLocks) { // each turn to fetch begins with it
		if line := e.Err.Error(); r.unreadable["lock"] != line {
			r.unreadable["lock"] = line
			log.Warningf("db %s: %v. Lists are saved all the same, but no other process may use this db: nothing would keep both from asking the server", r.settings.DB, e.Err)
		}
		return
	}
	switch others := len(r.unsaved); {
	case e.List == updater.BudgetFile && others == 0:
		log.Errorf("Cannot save the count of searches in db %s: %v. Searches are counted in memory meanwhile, and a restart may forget them", r.settings.DB, e.Err)
	case e.List != updater.BudgetFile && (others == 0 || others == 1 && r.unsaved[updater.BudgetFile]):
		cure := "Make the directory writable"
		if inTheWay != "" {
			cure = inTheWay + " is not a directory: move it away. " + cure
		}
		log.Errorf("Cannot write to db %s: %v. Lists are in memory only and are fetched again at each start. "+
			"%s, or set db to one that is (in a container a volume), or to off", r.settings.DB, e.Err, cure)
	}
	r.unsaved[e.List] = true
}

func (r *reporter) stored(list string) {
	if !r.unsaved[list] {
		return
	}
	if delete(r.unsaved, list); len(r.unsaved) == 0 {
		log.Infof("db %s can be written again", r.settings.DB)
	}
}

// shortPause is more than the longest pause that is told as a failed confirmation: as with requests
// that were not sent, the next one comes soon.
const shortPause = 45 * time.Second

// searched logs when confirmations begin to fail, when they pause, and when they work
// again. It does not log each one.
func (r *reporter) searched(err error) {
	hold := r.schedule.SearchHold()
	left := time.Until(hold.Until)
	paused := left > 0 && (hold.Failures == 0 || left > shortPause && !hold.Unsent)
	was := r.searching
	switch {
	case !paused && r.partly(err):
	case paused && err == nil && was == searchesPaused, // one minimum wait after the other
		err != nil && !paused && was >= searchesFail:
	case paused && was != searchesPaused:
		r.searching = searchesPaused
		log.Warningf("Confirmations are paused until %s (%v). Suspected names pass until they work again%s", say.Time(hold.Until), hold, r.hint(err, hold.Until))
	case err != nil && !paused:
		r.searching = searchesFail
		log.Warningf("A confirmation failed: %v. Suspected names pass until confirmations work again%s", err, r.hint(err, time.Time{}))
	case err == nil && was != searchesWork:
		r.searching = searchesWork
		log.Info("Confirmations work again")
	}
}

// partlyFor is how long a relay must have answered about all names until it is said to: while it
// cannot ask its server, it answers about those that it knows.
const partlyFor = 10 * time.Minute

// partly logs when a relay begins to leave names without an answer, and when it no longer does,
// and reports whether an outcome belongs to such a time.
func (r *reporter) partly(err error) bool {
	now := time.Now()
	begun := r.unanswered.IsZero()
	switch {
	case unanswered(err):
		if r.unanswered, r.unknown = now, err; begun {
			log.Warningf("Names are confirmed in part: %v. Suspected names that the relay does not know pass. They are asked about again, each after %s at most. The relay's log says until when that lasts", err, lookup.MaxUnanswered)
		}
		r.searching = searchesWork // the relay is there
		return true
	case err == nil && !begun && now.Sub(r.unanswered) > partlyFor:
		r.unanswered = time.Time{}
		log.Info("The relay answers about all names again")
	}
	return false
}

// hint says what the operator can do about an error that a retry does not cure. next is when the
// next try comes; zero: at any time.
func (r *reporter) hint(err error, next time.Time) string {
	status, ok := errors.AsType[*updater.StatusError](err)
	if !ok {
		return ""
	}
	code := status.Code
	if status.NoKey() {
		code = http.StatusForbidden
	}
	if end, now := r.settings.Ending(), time.Now(); end.Over(now) && code/100 == 4 && code != http.StatusTooManyRequests {
		return ". " + end.Text(now)
	}
	switch s := r.settings; code {
	case http.StatusBadRequest, http.StatusNotFound:
		if !s.Google() {
			return fmt.Sprintf(". Check the %s, the endpoint and the names in lists", s.Credential())
		}
		return fmt.Sprintf(". Check the %s and the names in lists", s.Credential())
	case http.StatusUnauthorized, http.StatusForbidden:
		if s.Token && status.Code == http.StatusUnauthorized {
			return fmt.Sprintf(". Put a new token into %s; it is tried within a minute%s", s.KeyFile, s.fromStart())
		}
		if !s.Google() {
			return fmt.Sprintf(". Check the %s: a relay knows those in the file of its -client-key-file; a new one is tried within a minute%s", s.Credential(), s.fromStart())
		}
		billing := ""
		if s.Dialect().Paid {
			billing = " in a project with a billing account"
		}
		enabled := ""
		if wait := time.Until(next); wait > 0 {
			enabled = fmt.Sprintf(". If you have just enabled the API: the next try is at %s, in %s", say.Time(next), say.Age(wait))
		}
		return fmt.Sprintf(". Check the %s, and that the %s API is enabled for it%s; a new one is tried within a minute%s%s", s.Credential(), s.Dialect().Service, billing, s.fromStart(), enabled)
	case http.StatusTooManyRequests:
		return fmt.Sprintf(". The quota of the %s is used up", r.settings.Credential())
	}
	return ""
}

func (r *reporter) measure(e updater.Event) {
	switch e.Kind {
	case updater.Fetched, updater.ListRefused, updater.BatchRefused:
		request("fetch", e)
	case updater.Searched:
		request("search", e)
	}
	switch e.Kind {
	case updater.Loaded, updater.Followed, updater.ListUpdated, updater.ListUnchanged, updater.ListRejected, updater.ListWaiting, updater.ListRefused:
		r.note(e)
	}
}

// note notes what is known of a list.
func (r *reporter) note(e updater.Event) {
	r.mu.Lock()
	r.lists[e.List] = e
	r.mu.Unlock()
	r.changed()
}

func request(method string, e updater.Event) {
	requestsTotal.WithLabelValues(method, outcomeOf(e.Err)).Inc()
	requestDuration.WithLabelValues(method).Observe(e.Took.Seconds())
}

// outcomeOf returns the value of the label outcome for an error. It never has the text
// of the error.
func outcomeOf(err error) string {
	status, ok := errors.AsType[*updater.StatusError](err)
	switch {
	case err == nil:
		return "success"
	case ok && status.Code == http.StatusTooManyRequests:
		return "quota"
	case ok && status.Code >= 500, unanswered(err):
		return "server_error"
	case ok:
		return "refused"
	case errors.Is(err, updater.ErrMalformed):
		return "malformed"
	}
	return "unreachable"
}

// unanswered reports whether a relay has answered that it has no answer about some names.
func unanswered(err error) bool {
	_, ok := errors.AsType[*lookup.UnansweredError](err)
	return ok
}

// endpointChanged logs and notes when one of several endpoints is left and when it answers again.
func (r *reporter) endpointChanged(e protocol.EndpointEvent) {
	r.mu.Lock()
	r.left[e.Endpoint] = e.Err != nil
	r.mu.Unlock()
	if e.Err == nil {
		log.Infof("%s answers again", e.Endpoint)
		return
	}
	log.Warningf("%s fails: %v. %s is asked in its place; %s is tried again, not before %s", e.Endpoint, e.Err, e.Instead, e.Endpoint, say.Time(e.Until))
}
