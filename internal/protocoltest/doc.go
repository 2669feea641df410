// Package protocoltest is a Safe Browsing server for tests that knows the rules of
// the protocol and reports a client that breaks one. It speaks every protocol that the
// plugin speaks, each a service, from the same lists and threats.
//
//	client ──RoundTrip / ServeHTTP──▶ begin ─▶ referee: may it ask this, now?
//	                                    │
//	        Publish, AddThreat ─▶ answer ◀─ Break: the queued fault, if any
//	                                    │
//	client ◀──────────── body ◀── deliver ─▶ referee: what the client now knows
//
// A Server is an http.RoundTripper, for clients that run in a testing/synctest
// bubble, and an http.Handler, for clients on a socket. Both ways give the same
// answers; in-process the referee knows exactly when an answer was read to its
// end and whether a request ended by time-out or by cancellation, on a socket
// it sees a lost connection only and takes it for a cancellation.
//
// In Web Risk a list goes by a threat type, see riskLists; the list "se-ext-4b" is there
// only. Its version tokens are no versions of Safe Browsing, and nothing that the
// referee knows of one service holds for the other, but for one thing: a client that
// moves from one to the other searches by the lists it has. The referee demands less
// than a client may do where it cannot know better: a first contact may follow at once,
// since its random delay may be 0, and so may a search that could be answered from a
// full hash, since another hash may begin with the same prefix.
//
// The package starts no goroutine. It imports only the generated messages and the
// protobuf module, never the code it is to test.
package protocoltest
