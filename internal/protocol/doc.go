// Package protocol speaks Safe Browsing over HTTP, version 5 and the Update API of
// version 4: its Client is the updater.Source and the lookup.Searcher of this
// program.
//
//	V5  updater ──Fetch──▶ hashLists:batchGet ──▶ HashList ──▶ Update, decoded while it comes
//	    lookup ──Search──▶ hashes:search ──▶ FullHash ──filter──▶ Answer
//	V4  updater ──Fetch──▶ threatListUpdates:fetch ──▶ ThreatEntrySets, sorted ──▶ Update
//	    lookup ──Search──▶ fullHashes:find ──▶ ThreatMatch ──filter──▶ Answer
//
// Nothing but hash prefixes and list versions is sent. The API key travels in a
// header and is in no error.
package protocol
