// Package protocoltest is a Safe Browsing v5 server for tests that knows the
// rules of the protocol and reports a client that breaks one.
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
// The package starts no goroutine. It imports only the generated v5 messages
// and the protobuf module, never the code it is to test.
package protocoltest
