// Package protocol speaks Safe Browsing v5 over HTTP: it is the updater.Source
// and the lookup.Searcher of this program.
//
//	updater ──Fetch──▶ hashLists:batchGet ──▶ HashList ──▶ Update, Rice decoded while it is read
//	lookup ──Search──▶ hashes:search ──▶ FullHash ──filter──▶ Answer
//
// Nothing but hash prefixes and list versions is sent. The API key travels in a
// header and is in no error.
package protocol
