// Package ownlist reads the operator's own block and allow lists, answers
// whether a host is on them, and reads them again when their files change.
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
//	0.0.0.0 example.com          the same (hosts file); other addresses do not block
//	*.example.com                the names below it
//	.example.com                 it and all below
//	||example.com^               it and all below (adblock); @@|| allows
//	|example.com^                exactly that host (adblock for DNS)
//	example.com CNAME .          exactly that host (RPZ); *.example.com: below it
//	address=/example.com/        it and all below (dnsmasq)
//	local-zone: example.com deny it and all below (unbound)
//	http://example.com/          exactly that host
//
// A zone file may say how a name is answered. Lines that are not supported are
// counted by kind, and what cannot be a list, such as a page of HTML, is not read.
//
// Where several entries match a host the one that names most of it decides,
// over all files; on a tie allow wins. Adblock's $important changes nothing
// about that.
//
// The package does not log: it returns values, with the words for what was found,
// and reports events. It imports
// lookup, and nothing else of this module.
package ownlist
