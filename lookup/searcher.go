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
	// not ask now.
	// The Checker calls it from several goroutines at once.
	Search(ctx context.Context, prefixes []Prefix) (Answer, error)
}

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
	// server, from a cache that several programs share. They hold in place of the above.
	Earlier map[Prefix]EarlierAnswer
}

// EarlierAnswer is an answer about one prefix that was received before the search.
type EarlierAnswer struct {
	Received time.Time     // with the monotonic clock of this process; not in the future
	TTL      time.Duration // from Received; that of Threats, too
	Threats  []ThreatHash
}

// ThreatHash is a full hash that the server lists. An answer may hold one full hash
// several times, each time with different threats.
type ThreatHash struct {
	Hash      FullHash
	Threats   Threats
	TTL       time.Duration // how long it may be cached; zero: use it once
	FrameOnly bool          // the threats are for content in frames, see Frames
}

// ErrBackoff says that the server must not be asked now.
var ErrBackoff = errors.New("waiting before the server may be asked again")

// ErrLimited says that too many searches are under way already.
var ErrLimited = errors.New("too many confirmations at once")

// ErrClosed says that the Checker is closed.
var ErrClosed = errors.New("shutting down")
