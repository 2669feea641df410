// Package lookup answers one question: is this host unsafe?
//
//	qname ──FromQname──▶ Host ──▶ suffixes ──SHA-256──▶ full hashes
//	                                                         │
//	Database (one atomic load):             is one in a list, or is it perhaps
//	a filter, then the exact sets ◀─────▶        a threat in the cache?
//	                                             no ├──▶ Safe
//	                                            yes ▼
//	                                   does the cache have an answer?
//	                                            yes ├──▶ Safe or Unsafe
//	                                             no ▼
//	                        Candidates ──Confirm──▶ Searcher ──▶ Safe, Unsafe or Unsure
//
// A list holds hash prefixes, so a match is only a suspicion. A host is Unsafe only
// after the server has confirmed a full hash, and only while that answer may be used.
//
// The package imports no package for DNS messages or for a wire format, does not log, and
// reads no file but in UsableMemory. Of this module it imports only internal/prefixset, which holds the
// prefixes of a list.
package lookup
