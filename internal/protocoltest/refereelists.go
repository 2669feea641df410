package protocoltest

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"time"
)

// ourFloor begins violations of waits that are this project's own choice. Google
// publishes no rule for an answer without a minimum wait; a client with other floors
// breaks no rule of Google's.
const ourFloor = "floor of this project, not a rule of Google's"

// Floors of this project, the same as in updater.
const (
	// unchangedWait follows an answer that brought no change and no minimum wait.
	unchangedWait = 30 * time.Minute
	// stepWait follows maxAtOnce fetches at once in a row. Before, an answer with a
	// change and without minimum wait asks for the next step.
	stepWait  = time.Minute
	maxAtOnce = 32
)

// listState is what the client must know of one list. A version may come from
// one protocol of a service and serve in another.
type listState struct {
	newest    []byte          // version of the last good answer, nil if none
	older     []byte          // the one before newest, nil if none
	since     time.Time       // newest is known to the client
	loose     bool            // before since it could not be said what the client held
	good      map[string]bool // versions of all good answers
	contents  [][]string      // entries of all good answers
	dropped   bool            // the content was bad: the version must not be sent
	restarted bool            // since the last answer the client was started again
	unsure    bool            // the same, since the last good one: it may hold any good version

	v5, risk listClock // risk in referee.riskLists only
}

// listStates are lists by name.
type listStates map[string]*listState

// get returns the state of a list, made when there is none yet.
func (m listStates) get(name string) *listState {
	l := m[name]
	if l == nil {
		l = &listState{good: map[string]bool{}}
		m[name] = l
	}
	return l
}

// hold reports whether an entry stood in some version of these lists that the client
// was given.
func (m listStates) hold(lists []string, entry string) bool {
	return m.any(lists, func(entries []string) bool { return contains(entries, entry) })
}

// holdLonger reports the same for any entry that begins like this.
func (m listStates) holdLonger(lists []string, beginning string) bool {
	return m.any(lists, func(entries []string) bool {
		i, _ := slices.BinarySearch(entries, beginning)
		return i < len(entries) && strings.HasPrefix(entries[i], beginning)
	})
}

// any reports whether some version of these lists that the client was given holds what
// is looked for.
func (m listStates) any(lists []string, holds func(entries []string) bool) bool {
	for _, name := range lists {
		if l := m[name]; l != nil && slices.ContainsFunc(l.contents, holds) {
			return true
		}
	}
	return false
}

// listClock is when the client may ask for one list by way of one protocol.
type listClock struct {
	notBefore time.Time // no request earlier
	why       string    // the rule behind notBefore
	failed    backoff   // of the list's content, and of the list by itself
	alone     bool      // it was refused, by itself or in a batch, and not served since

	stepUntil time.Time // a request before this time is a fetch at once
	atOnce    int       // fetches at once in a row

	inFlight int // requests under way that name the list, where several may be
}

// state returns the state of a list of Safe Browsing.
func (r *referee) state(name string) *listState { return r.lists.get(name) }

// listRequests is what the referee knows of the list requests of one protocol.
type listRequests struct {
	backoff *backoff // of all of them
	single  bool     // each names one list, so that several may be under way
	state   func(list string) *listState
	clock   func(list string) *listClock
}

// v5Requests are the list requests of v5.
func (r *referee) v5Requests() listRequests {
	return listRequests{
		backoff: &r.backoffs.updates, state: r.state,
		clock: func(name string) *listClock { return &r.state(name).v5 },
	}
}

// judgeLists judges the names of a list request and its time.
func (r *referee) judgeLists(q *query, now time.Time, of listRequests) {
	b := of.backoff
	early := now.Before(b.notBefore)
	if early {
		r.violation(ruleFrequency+", back-off", "lists %q asked for %s, after %d failed list requests in a row",
			q.names, tooEarly(now, b.notBefore), b.failures)
	}
	for i, name := range q.names {
		if r.judgeTwice(q.names, i) {
			continue
		}
		clock := of.clock(name)
		r.judgeAlone(q, name, clock)
		if !early {
			r.judgeList(name, clock, now)
		}
		clock.inFlight++
	}
}

// judgeTwice reports whether a list was named before in the same request.
func (r *referee) judgeTwice(names []string, i int) bool {
	if !slices.Contains(names[:i], names[i]) {
		return false
	}
	if !slices.Contains(names[i+1:], names[i]) {
		r.violation("REST reference, list requests", "list %q is named more than once", names[i])
	}
	return true
}

// judgeAlone judges whether a list may be asked for together with others: not after
// it was refused, since one list that the server does not know fails a whole batch.
func (r *referee) judgeAlone(q *query, name string, l *listClock) {
	if l.alone && len(q.names) > 1 {
		r.violation("unknown lists", "list %q asked for in a batch, %q, though it was refused: it must be asked for by itself", name, q.names)
	}
}

// judgeList judges whether one list may be asked for now.
func (r *referee) judgeList(name string, l *listClock, now time.Time) {
	if l.inFlight > 0 {
		r.violation(ruleFrequency, "list %q asked for at %s while another request for it is under way", name, stamp(now))
		return
	}
	if now.Before(l.notBefore) {
		r.violation(l.why, "list %q asked for %s", name, tooEarly(now, l.notBefore))
		return
	}
	if !now.Before(l.stepUntil) {
		l.atOnce = 0
		return
	}
	l.atOnce++
	if l.atOnce > maxAtOnce {
		r.violation(ourFloor+", no minimum wait", "list %q asked for %s, after %d fetches at once",
			name, tooEarly(now, l.stepUntil), maxAtOnce)
	}
}

// judgeVersions judges the versions of a list request.
func (r *referee) judgeVersions(q *query, owners map[string]string) {
	seen := map[string]bool{}
	for _, v := range q.versions {
		owner, known := owners[string(v)]
		switch {
		case !known:
			r.violation("Local Database, version", "the version %x sent for %q was never served", v, q.names)
		case !slices.Contains(q.names, owner):
			r.violation("Local Database, version", "the version %x of list %q was sent for %q", v, owner, q.names)
		case seen[owner]:
			r.violation("Local Database, version", "more than one version was sent for list %q", owner)
		default:
			seen[owner] = true
			r.judgeVersion(r.lists, owner, v)
		}
	}
}

// judgeVersion judges a version that was served for the list some time. After a
// start the client may know less than it was told, so any good one will do.
func (r *referee) judgeVersion(lists listStates, name string, v []byte) {
	l := lists.get(name)
	switch {
	case r.oneOfMany:
	case !l.good[string(v)]:
		r.violation("Local Database, version", "list %q: the version %x comes from an answer that had to be refused", name, v)
	case l.restarted:
	case l.dropped:
		r.violation("Local Database, version", "list %q: a version was sent although the last update was bad; only a full update helps", name)
	case !bytes.Equal(v, l.newest):
		r.violation("Local Database, version", "list %q: the version %x was sent, want the newest, %x", name, v, l.newest)
	}
}

// judgeState judges the version that was sent for one of some lists, by the word for it of a protocol with
// one version for each list.
func (r *referee) judgeState(word string, lists listStates, name string, state []byte, owners map[string]string) {
	if len(state) == 0 {
		return
	}
	rule := "Local Databases, " + word
	owner, known := owners[string(state)]
	switch {
	case !known:
		r.violation(rule, "the %s %x sent for %q was never served", word, state, name)
	case owner != name:
		r.violation(rule, "the %s %x of list %q was sent for %q", word, state, owner, name)
	default:
		r.judgeVersion(lists, name, state)
	}
}

// learnLists takes in the outcome of a list request.
func (r *referee) learnLists(x *exchange, how outcome, at time.Time, of listRequests) {
	for i, name := range x.query.names {
		if !slices.Contains(x.query.names[:i], name) {
			clock := of.clock(name)
			clock.inFlight = max(0, clock.inFlight-1)
		}
	}
	switch how {
	case failed:
		r.learnRefusal(x, at, of)
	case received:
		if !of.late(at) {
			*of.backoff = backoff{}
		}
		for _, s := range x.reply.served {
			of.state(s.name).learn(s, at)
			of.clock(s.name).learn(s, at)
		}
	}
}

// learnRefusal takes in that a list request failed.
func (r *referee) learnRefusal(x *exchange, at time.Time, of listRequests) {
	r.before = r.backoffs
	if x.note.Status != 0 {
		for _, s := range x.reply.served[:x.reply.whole] {
			of.clock(s.name).wait(at, s)
		}
	}
	if x.query.refusesOneList(x.note.Status) {
		l := of.clock(x.query.names[0])
		l.refused(at)
		l.notBefore = x.retryAt(l.notBefore, at)
		return
	}
	splits := r.relay && x.note.Status == http.StatusNotFound && len(x.query.names) > 1
	if !of.late(at) && !splits {
		of.backoff.fail(at)
		of.backoff.notBefore = x.retryAt(of.backoff.notBefore, at)
	}
	if refusesLists(x.note.Status) {
		for _, name := range x.query.names {
			of.clock(name).alone = true
		}
	}
}

// late reports whether a request that ends at a time was under way when another one
// failed: it neither counts as another failure nor ends the wait.
func (of listRequests) late(at time.Time) bool { return of.single && at.Before(of.backoff.notBefore) }

// learn takes in an answer for the list. A list whose content is bad is refused by
// itself, without spoiling the others ("Local Database").
func (l *listState) learn(s served, at time.Time) {
	if s.omitted {
		return
	}
	loose := l.restarted || l.dropped || l.newest == nil
	l.restarted = false
	l.dropped = s.spoilt
	if s.spoilt {
		return
	}
	l.unsure = false
	if loose || !bytes.Equal(l.newest, s.version) {
		l.newest, l.older, l.since, l.loose = s.version, l.newest, at, loose
	}
	if !l.good[string(s.version)] {
		l.good[string(s.version)] = true
		l.contents = append(l.contents, s.entries)
	}
}

// refused takes in that the list, asked for by itself, was refused. That is a failure
// of this list, which has a back-off of its own, and of no other.
func (l *listClock) refused(at time.Time) {
	l.failed.fail(at)
	l.notBefore, l.why = l.failed.notBefore, "back-off of one list"
	l.alone, l.stepUntil = true, time.Time{}
}

// wait takes in a minimum wait that is longer than what is known, whatever else became of the answer.
func (l *listClock) wait(at time.Time, s served) {
	if end := later(s.next, at, s.wait); end.After(l.notBefore) {
		l.notBefore, l.why = end, ruleFrequency+", minimum wait in an answer that failed"
	}
}

// learn takes in what an answer for the list says about the next request.
func (l *listClock) learn(s served, at time.Time) {
	l.stepUntil, l.alone = time.Time{}, false
	if s.spoilt {
		l.failed.fail(at)
		l.notBefore, l.why = l.failed.notBefore, ruleFrequency+", back-off of one list"
		l.wait(at, s)
		return
	}
	l.failed = backoff{}
	switch {
	case s.next.After(at):
		l.notBefore, l.why = s.next, ruleFrequency+", recommended next diff"
	case s.wait > 0:
		l.notBefore, l.why = at.Add(s.wait), ruleFrequency+", minimum wait"
	case s.changed:
		l.notBefore, l.why = time.Time{}, ""
		l.stepUntil = at.Add(stepWait)
	default:
		l.notBefore, l.why = at.Add(unchangedWait), ourFloor+", no minimum wait and no change"
	}
}
