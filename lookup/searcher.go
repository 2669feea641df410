package lookup

import (
	"context"
	"errors"
	"time"
)

// Searcher asks the server for the full hashes behind prefixes.
type Searcher interface {
	// Search returns what the server knows about the prefixes: 1 to MaxPrefixes,
	// all different. It returns ErrBackoff or ErrBudget, wrapped or not, if it must
	// not ask now, and *UnansweredError if a relay of one's own has answered without
	// an answer about all of them.
	//
	// Answer.Earlier holds with an error, too: that is about the other prefixes then, and
	// the rest of the Answer says nothing. A threat that is known must not pass because
	// something else is not.
	//
	// What is known before the rest is answered it tells by Tell.
	//
	// The Checker calls it from several goroutines at once.
	Search(ctx context.Context, prefixes []Prefix) (Answer, error)
}

// onlyKnownKey is the key of OnlyKnown in a context.
type onlyKnownKey struct{}

// withOnlyKnown returns a context with which a Searcher asks for nothing that it does not know.
func withOnlyKnown(ctx context.Context) context.Context {
	return context.WithValue(ctx, onlyKnownKey{}, true)
}

// OnlyKnown reports whether a Searcher that is called with ctx must answer from what it and the
// relays of one's own know, since the share of the client is spent: what costs a search of the
// server has no answer. See Config.Known.
func OnlyKnown(ctx context.Context) bool { return ctx.Value(onlyKnownKey{}) != nil }

// Answer is what the server knows about the prefixes of one search. The Searcher
// leaves out threats that the server marks as not to be enforced.
type Answer struct {
	Threats []ThreatHash
	// TTL is how long the answer may be cached, for every prefix in the search.
	// Entries of Threats have a TTL of their own. Zero: use it once, do not cache it.
	TTL time.Duration
	// MinimumWait is the time before the next request to the server; zero: the
	// server gave none.
	MinimumWait time.Duration
	// Earlier are answers about single prefixes that the Searcher had without asking the
	// server, from a cache that several programs share. They hold instead of the above,
	// and with an error.
	Earlier map[Prefix]EarlierAnswer
}

// EarlierAnswer is an answer about one prefix that was received before the search.
type EarlierAnswer struct {
	Received time.Time // with the monotonic clock of this process; not in the future
	// TTL counts from Received, as in Threats. Negative: nothing is known but
	// Threats, and the error of the search is about the rest.
	TTL     time.Duration
	Threats []ThreatHash
}

// tellKey is the key of the function of Tell in a context.
type tellKey struct{}

func withTell(ctx context.Context, tell func(prefixes []Prefix, answer Answer)) context.Context {
	return context.WithValue(ctx, tellKey{}, tell)
}

// Tell tells the Checker what answer says about prefixes before the rest of a search has been
// answered: their queries do not wait for a server that hangs. A Searcher calls it with the context
// of Search, only until Search returns. Search returns all of its Answer in any case. With a context
// that is not of a Checker nothing happens. It is safe for concurrent use.
func Tell(ctx context.Context, prefixes []Prefix, answer Answer) {
	if tell, ok := ctx.Value(tellKey{}).(func([]Prefix, Answer)); ok && len(prefixes) > 0 {
		tell(prefixes, answer)
	}
}

// ThreatHash is a full hash that the server lists. An answer may hold one full hash
// several times, each time with different threats.
type ThreatHash struct {
	Hash    FullHash
	Threats Threats
	TTL     time.Duration // how long it may be cached; zero: use it once
	// FrameOnly is the server's mark FRAME_ONLY: the threats are for the content of frames, the
	// page itself among them, but not for the other files that a page loads. A name server cannot
	// know what a query is for, so they count like all others.
	FrameOnly bool
}

// unsafe returns the decision that the threats call for, which were received at a time.
func (t ThreatHash) unsafe(by Decider, list, expression string, received time.Time) Decision {
	first, also := t.Threats.split()
	return Decision{
		Verdict: Unsafe, By: by, Threat: first, Also: also, FrameOnly: t.FrameOnly, List: list, Expression: expression, Expires: received.Add(t.TTL),
	}
}

// UnansweredError is the error of a relay of one's own that has answered, but does not know
// all prefixes and may not ask its server now. The prefixes without an answer wait until
// Until, each for itself. It is no failure of the relay: other prefixes may be asked about
// at any time.
type UnansweredError struct {
	Until  time.Time // at most MaxUnanswered from the answer; later times count as that
	Reason error     // wraps ErrBackoff, ErrBudget or ErrLimited, or is another error
}

// MaxUnanswered is the longest wait of an UnansweredError. To ask a relay of one's own costs
// nothing, and it may know by then what it did not know: another client has asked, or a wait has
// ended.
const MaxUnanswered = time.Minute

// Error implements error.
func (e *UnansweredError) Error() string { return "the relay has no answer: " + e.Reason.Error() }

// Unwrap returns the reason.
func (e *UnansweredError) Unwrap() error { return e.Reason }

// ErrNotSent says that there was no connection to the server, so that nothing was sent.
var ErrNotSent = errors.New("the search was not sent")

// ErrBackoff says that the server must not be asked now.
var ErrBackoff = errors.New("waiting before the server may be asked again")

// ErrLimited says that too many searches are under way already.
var ErrLimited = errors.New("too many confirmations at once")

// ErrSlow says that the server has not answered yet, and is still being asked.
var ErrSlow = errors.New("the server has not answered yet")

// ErrClosed says that the Checker is closed.
var ErrClosed = errors.New("shutting down")
