// Package ownlist reads the operator's own block and allow lists, answers
// whether a host is on them, and reads them anew when their files change.
//
//	file ──lines──▶ parser ──entries──▶ builder ──▶ content (immutable)
//	                                                    │ one atomic store
//	stat every 5 s ──changed?──▶ load beside the old ───┤
//	                                                    ▼
//	query ──▶ Best(files, host, now) ──▶ File.Match ──▶ one atomic load
//
// The formats are recognised line by line, so that a file may mix them. Each
// means what its own tools mean by it:
//
//	example.com                  exactly that host; in an allow list all below, too
//	0.0.0.0 example.com          the same (hosts file)
//	*.example.com                the names below it
//	.example.com                 it and all below
//	||example.com^               it and all below (adblock); @@|| allows
//	example.com CNAME .          exactly that host (RPZ); *.example.com: below it
//	http://example.com/          exactly that host
//
// Where several entries match a host the one that names most of it decides,
// over all files; on a tie allow wins. Adblock's $important changes nothing
// about that.
//
// The package does not log: it returns values and reports events. It imports
// lookup, and nothing else of this module.
package ownlist
