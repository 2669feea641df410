package protocoltest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// exchange is one request from its arrival to its end. The server's lock guards
// what changes after begin: note, ended and pardon.
type exchange struct {
	server *Server
	query  query
	key    string // or access token that the client asked with
	reply  reply
	note   *Request
	life   int  // of the client that asked, see referee.life
	ended  bool // the referee knows the outcome
	pardon bool // the client told that it cancels this one
}

// outcome is how an exchange ended for the client.
type outcome int

const (
	received  outcome = iota // the whole answer
	failed                   // no answer it could use
	cancelled                // the client lost interest, which is no failure
)

// begin notes a request that has just arrived, judges it, and makes its reply.
func (s *Server) begin(r *http.Request) *exchange {
	x := &exchange{server: s, query: parseQuery(r), key: credential(r)}
	now := time.Now()
	s.locked(func() {
		if x.query.searches() {
			x.query.names = slices.DeleteFunc(x.query.names, func(name string) bool { return !s.published(name) })
		}
		q := &x.query
		x.note = &Request{
			Time: now, Method: q.method, Lists: q.names, Versions: q.versions, Prefixes: q.prefixes,
			MaxUpdate: q.maxUpdate, MaxDatabase: q.maxDatabase, UserAgent: r.UserAgent(),
		}
		s.requests = append(s.requests, x.note)
		s.referee.as(x.key)
		s.referee.judgeForm(&x.query, r, s.key, s.token)
		s.referee.judge(&x.query, now, s.versionOwners(&x.query))
		x.life = s.referee.life
		s.last = x
		x.reply = s.answer(&x.query, r)
		x.note.Fault = x.reply.fault
	})
	return x
}

// think waits as long as the reply is to be delayed, or until ctx ends.
func (x *exchange) think(ctx context.Context) error {
	if x.reply.delay > 0 {
		timer := time.NewTimer(x.reply.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		x.interrupt(ctx)
		return ctx.Err()
	}
	return nil
}

// deliver notes that the reply is on its way. A reply of no use to the client has
// failed at once, whether its body is read or not.
func (x *exchange) deliver() {
	x.server.locked(func() {
		x.note.Answered = time.Now()
		x.note.Status = x.reply.status
	})
	if x.reply.useless || x.reply.closed {
		x.end(failed)
	}
}

// interrupt ends an exchange whose context has ended. A time-out is a failure
// (pages "Request Frequency"), a cancellation is none: the client shuts down.
func (x *exchange) interrupt(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		x.end(failed)
		return
	}
	x.end(cancelled)
}

// end tells the referee the outcome. Only the first call counts.
func (x *exchange) end(how outcome) {
	x.server.locked(func() {
		if x.ended {
			return
		}
		x.ended = true
		x.note.Done = true
		if how == failed && x.pardon {
			how = cancelled
		}
		x.note.Failed = how == failed
		x.note.Cancelled = how == cancelled
		at := x.note.Answered
		if at.IsZero() {
			at = time.Now()
		}
		x.server.referee.as(x.key)
		x.server.referee.learn(x, how, at)
	})
}

// ClientStarted tells that the client was started again: it knows nothing any more
// of the prefixes it searched for and of requests under way, but it does know the
// schedule it saved. It may have lost the last version it was given.
func (s *Server) ClientStarted() { s.locked(s.referee.clientStarted) }

// ClientLostState tells that the client starts with an empty disk: it knows no
// minimum wait, no back-off and no version.
func (s *Server) ClientLostState() {
	s.locked(func() {
		s.referee.clientStarted()
		s.referee.clientLostState()
	})
}

// ClientCancelled tells that the client cancelled its last request because it was
// shutting down, which is no failure and calls for no back-off. It may be called
// before or after that request ends.
func (s *Server) ClientCancelled() {
	s.locked(func() {
		x := s.last
		if x == nil {
			return
		}
		x.pardon = true
		if x.ended && x.note.Failed && x.life == s.referee.life {
			s.referee.undoFailure()
			x.note.Failed, x.note.Cancelled = false, true
		}
	})
}

// ActAsRelay makes the server say, as a relay does, that it lacks a list: with status 404 and the
// header Safebrowsing-Lists. A client may then ask at once for each list of the batch.
func (s *Server) ActAsRelay() { s.locked(func() { s.referee.relay = true }) }

// JudgeSearchBackoff makes the referee judge the back-off of hashes.search too:
// after status 429 or 403 as for list updates, after three other failures in a row
// five minutes, doubling up to 30 with each further three. Off at the start.
func (s *Server) JudgeSearchBackoff(on bool) {
	s.locked(func() { s.referee.lenient = !on })
}

// Request is what the server noted about one request. A copy given out does not
// change any more; its slices are the server's, to be read only.
type Request struct {
	Time        time.Time // when it arrived
	Answered    time.Time // when the answer began; zero before, and if it never did
	Method      string    // as in Break; "" for an unknown path
	Lists       []string  // names asked for, in order; or that the types asked for stand for
	Versions    [][]byte  // versions sent, in order; or states, or version tokens
	Prefixes    [][]byte  // hash prefixes asked for, in order
	MaxUpdate   int       // the most entries of an update, 0 if absent; of several lists the greatest
	MaxDatabase int       // the most entries of a list, likewise
	UserAgent   string    // as sent
	Status      int       // 0: no answer yet, or none at all
	Fault       bool      // a queued fault was applied
	Done        bool      // the answer was read to its end, or the request ended without
	Failed      bool      // no part of the answer was of use to the client
	Cancelled   bool      // the client cancelled it, which is no failure
}

// Requests returns all requests of a method in the order they arrived, of "update"
// those for the contents of lists, of "search" the searches of all services, and of ""
// all.
func (s *Server) Requests(method string) []Request {
	var found []Request
	s.locked(func() {
		for _, r := range s.requests {
			if (&query{method: r.Method}).is(method) {
				found = append(found, *r)
			}
		}
	})
	return found
}

// Forget forgets all requests but the last keep, and of each list all versions but the last
// keep, so that a test can run for hours. It returns how many requests it has forgotten. A
// client that sends a forgotten version gets a full update.
func (s *Server) Forget(keep int) (forgotten int) {
	s.locked(func() {
		forgotten = max(0, len(s.requests)-keep)
		s.requests = slices.Delete(s.requests, 0, forgotten)
		for _, l := range s.lists {
			l.versions = slices.Delete(l.versions, 0, max(0, len(l.versions)-keep))
		}
	})
	return forgotten
}
