package ownlist

import "bytes"

// kind names a kind of unsupported line, in the singular and in the plural.
type kind struct{ one, many string }

var (
	kindRegexp    = kind{"regular expression", "regular expressions"}
	kindURL       = kind{"URL with a path or a port", "URLs with a path or a port"}
	kindPattern   = kind{"pattern for a part of a name", "patterns for a part of a name"}
	kindElement   = kind{"rule for parts of a page", "rules for parts of a page"}
	kindDnsmasq   = kind{"dnsmasq setting", "dnsmasq settings"}
	kindUnbound   = kind{"unbound setting", "unbound settings"}
	kindRPZAction = kind{"unknown RPZ action", "unknown RPZ actions"}
	kindClass     = kind{"record of a class other than IN", "records of a class other than IN"}
	kindOther     = kind{"line of another kind", "lines of other kinds"}
)

// with returns the kind of lines that hold a word: "2 with $client".
func with(word string) kind { return kind{"with " + word, "with " + word} }

// records returns the kind of records of a type.
func records(rrtype string) kind { return kind{rrtype + " record", rrtype + " records"} }

// unsupported notes the kind of a line and returns the outcome unsupported.
func (p *parser) unsupported(k kind) outcome {
	p.kind = k
	return unsupported
}

// maxOption is the most bytes of the name of an adblock option.
const maxOption = 20

// optionKind returns the kind of an adblock rule with an option: $client=… or
// $~third-party. It returns kindOther if the text cannot be the name of an option: the
// words of a kind reach the log.
func optionKind(option []byte) kind {
	name, _, _ := bytes.Cut(bytes.TrimPrefix(bytes.TrimSpace(option), []byte("~")), []byte("="))
	isName := len(name) > 0 && len(name) <= maxOption
	for _, c := range name {
		isName = isName && (letter[c] != 0 && c != '.')
	}
	if !isName {
		return kindOther
	}
	return with("$" + string(bytes.ToLower(name)))
}
