// Package protocol speaks Safe Browsing over HTTP, and the Web Risk API, version 1: its Client is the updater.Source and the
// lookup.Searcher of this program.
//
//	V5  updater ──Fetch──▶ hashLists:batchGet ──▶ HashList ──▶ Update, decoded while it comes
//	    lookup ──Search──▶ hashes:search ──▶ FullHash ──filter──▶ Answer
//	WebRisk  updater ──Fetch──▶ threatLists:computeDiff, one list each ──▶ additions, sorted ──▶ Update
//	         lookup ──Search──▶ hashes:search, one prefix each ──▶ ThreatHash ──filter──▶ Answer
//
// RicePlan is for the other side: it writes lists of version 5 as a server does.
//
// Nothing but hash prefixes and list versions is sent. The API key, or access token,
// travels in a header and is in no error.
package protocol
