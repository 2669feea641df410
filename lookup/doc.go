// Package lookup answers one question: is this host unsafe?
//
//	qname ──FromQname──▶ Host ──▶ expressions ──SHA-256──▶ full hashes
//	                                                          │
//	            Database (one atomic load) ◀── in a list? ────┤
//	            a filter, then the exact sets                 ▼
//	      no ──▶ Safe                    yes ──▶ Candidates ──▶ Cache ──▶ Searcher
//	                                                          │
//	                                                          ▼
//	                                       Decision: Safe, Unsafe or Unsure
//
// A list holds hash prefixes, so a match is only a suspicion: nothing is
// Unsafe before a full hash was confirmed by the server, within the time that
// its answer may be used.
//
// The package knows neither DNS messages nor a wire format, does not log, and
// reads no file. Of this module it imports internal/prefixset alone, which holds
// the prefixes of a list.
package lookup
