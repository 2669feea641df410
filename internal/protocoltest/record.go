package protocoltest

import (
	"bytes"
	"slices"
	"time"
)

// Request is what the server noted about one request. A copy given out does not
// change any more.
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

// newRequest begins the note about a request.
func newRequest(q *query, now time.Time, userAgent string) *Request {
	return &Request{
		Time: now, Method: q.method, Lists: q.names, Versions: q.versions, Prefixes: q.prefixes,
		MaxUpdate: q.maxUpdate, MaxDatabase: q.maxDatabase, UserAgent: userAgent,
	}
}

// clone returns a deep copy.
func (r *Request) clone() Request {
	c := *r
	c.Lists = slices.Clone(r.Lists)
	c.Versions = cloneAll(r.Versions)
	c.Prefixes = cloneAll(r.Prefixes)
	return c
}

func cloneAll(all [][]byte) [][]byte {
	cloned := slices.Clone(all)
	for i, b := range cloned {
		cloned[i] = bytes.Clone(b)
	}
	return cloned
}

// Requests returns all requests of a method in the order they arrived, of "update"
// those for the contents of lists, of "search" the searches of all services, and of ""
// all.
func (s *Server) Requests(method string) []Request {
	var found []Request
	s.locked(func() {
		for _, r := range s.requests {
			if (&query{method: r.Method}).is(method) {
				found = append(found, r.clone())
			}
		}
	})
	return found
}

// Forget forgets all requests but the last keep, and of each list all versions but the last
// keep, so that a test can go on for hours. It returns how many requests it has forgotten. A
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
