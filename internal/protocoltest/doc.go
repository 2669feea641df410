// Package protocoltest is a Safe Browsing server for tests that knows the rules of
// the protocol and reports a client that breaks one. It speaks v5 and the Update API
// v4, from the same lists and threats.
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
// In v4 a list goes by a threat type, a platform type and a threat entry type; here
// it is named as in v5, see triples. A state of v4 is a version of v5: either serves
// for both, but waits and back-offs of the two protocols know nothing of each other.
//
// The package starts no goroutine. It imports only the generated messages and the
// protobuf module, never the code it is to test.
package protocoltest
