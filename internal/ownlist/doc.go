// Package ownlist reads the operator's own block and allow lists, tells whether a host
// is on them, and reads them again when their files change.
//
//	file ──lines──▶ parser ──entries──▶ builder ──▶ content (immutable)
//	                                                    │ one atomic store
//	stat every ½ s ──changed?──▶ load the new content ──┤
//	                                                    ▼
//	query ──▶ Best(files, host, now) ──▶ File.Match ──▶ one atomic load
//
// The parser recognises the format of each line, so a file may mix formats. A line
// means here what it means to the tools that use its format:
//
//	example.com                  exactly that host; in an allow list all names below too
//	0.0.0.0 example.com          the same (hosts file); other addresses do not block
//	*.example.com                the names below it
//	.example.com                 it and all names below
//	||example.com^               it and all names below (adblock); @@|| allows
//	|example.com^                exactly that host (adblock for DNS)
//	example.com CNAME .          exactly that host (RPZ); *.example.com: below it
//	address=/example.com/        it and all names below (dnsmasq)
//	local-zone: example.com deny it and all names below (unbound)
//	http://example.com/          exactly that host
//
// A zone file may say how a name is answered. Summary counts unsupported lines by kind.
// A file that cannot be a list, such as an HTML page, is not read.
//
// If several entries match a host, in one or several files, the one with the most labels
// decides; on a tie allow wins. Adblock's $important does not change that.
//
// A list by URL is fetched into a file, which is read like any other:
//
//	due? ──▶ GET, conditional ──▶ bounded stream ─┬─▶ Survey ──▶ judge ──believed?──▶ list file
//	 ▲                                            └─▶ temporary file ─────────────────────▲
//	 └───────────────── state file: validators, times, failures, doubts ◀── outcome
//
// One that is not believed leaves the file as it is. So the last good content is in force at
// once at the next start, before anything is asked.
//
// The package does not log: it returns values and reports events, with words that a log
// line can quote. No error and no state has the query or the user information of a URL, which
// may be secret.
package ownlist
