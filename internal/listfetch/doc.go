// Package listfetch keeps the operator's lists by URL fresh: it fetches each into a file,
// which package ownlist reads like any other list.
//
//	due? ──▶ GET, conditional ──▶ bounded stream ─┬─▶ ownlist.Survey ──▶ judge ──believed?──▶ list file
//	 ▲                                            └─▶ temporary file ────────────────────────────▲
//	 └───────────────── state file: validators, times, failures, doubts ◀── outcome
//
// A list that is not believed leaves the file as it is. So the last good content is in
// force at once at the next start, before anything is asked.
//
// The package does not log: it returns values and reports events. No error and no Status
// has the query or the user information of a URL, which may be secret.
package listfetch
