// Package sharing lets relays act as one over Redis or Valkey. It is the only package that
// knows the client library.
//
//	Answers, Limits   what relays have been told, and whom they have served
//	Store             lease, clocks, counts and lists
//	Client            calls of Redis, below both
//
//
//	a client's request ─▶ Fast ── 25 ms, breaker ─▶ fast connection ──▶ Redis
//	                      Later ── bounded queue ──▶       〃
//	housekeeping ───────▶ Do, Eval, Subscribe ────▶ bulk connection ──▶ Redis
//
// Redis is never needed: Open does not wait for it, and each call returns an error when
// its time is over.
package sharing

import (
	"errors"
	"net"
	"time"
)

// Deadline is how long a request of a client waits for Redis. On one network an answer
// takes 0.1 to 0.5 ms, and some 10 ms where a machine is busy; a search of the server takes
// 20 ms and more, and may cost money, as one late answer does for each of its prefixes. A Redis
// that hangs delays few requests, see maxFailures.
const Deadline = 25 * time.Millisecond

// ErrAway says that Redis is left alone because it failed a moment ago.
var ErrAway = errors.New("leaving Redis alone")

// Observer is told what happens. Its methods are called from several goroutines at once
// and must return at once.
type Observer interface {
	// Done tells that an operation has ended, what it is for, and its error or nil.
	Done(operation string, took time.Duration, err error)
	// Dropped tells that a write of Later was not made, because too many waited.
	Dropped(operation string)
	// State tells that Redis is used from now on (err nil), or is left alone by Fast
	// and Later, and why.
	State(err error)
}

// Config says which Redis to use and how.
type Config struct {
	Target       Target
	Prefix       string        // of all keys; with a hash tag, as Cluster needs, see Key
	Password     string        // "": the Target's
	PasswordFile string        // read for each connection; "": none
	Sentinels    string        // password of the Sentinels; "": none
	CAFile       string        // of those who sign the certificate, in PEM form; "": the system's
	Resolver     *net.Resolver // nil: the system's
	Deadline     time.Duration // of Fast; zero: Deadline
	Observer     Observer      // may be nil
}
