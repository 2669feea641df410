package ownlist

import "bytes"

// kind says in words what is not supported, of one line and of several.
type kind struct{ one, many string }

var (
	kindRegexp    = kind{"regular expression", "regular expressions"}
	kindURL       = kind{"URL with a path or a port", "URLs with a path or a port"}
	kindPattern   = kind{"pattern of a part of a name", "patterns of a part of a name"}
	kindElement   = kind{"rule about parts of a page", "rules about parts of a page"}
	kindDnsmasq   = kind{"dnsmasq setting", "dnsmasq settings"}
	kindUnbound   = kind{"unbound setting", "unbound settings"}
	kindRPZAction = kind{"unknown RPZ action", "unknown RPZ actions"}
	kindClass     = kind{"record of a class other than IN", "records of a class other than IN"}
	kindOther     = kind{"line of another kind", "lines of other kinds"}
)

// with is the kind of the lines that have a word in them: "2 with $client".
func with(word string) kind { return kind{"with " + word, "with " + word} }

// records is the kind of the records of a type.
func records(rrtype string) kind { return kind{rrtype + " record", rrtype + " records"} }

// unsupported is the outcome of a line of a kind.
func (p *parser) unsupported(k kind) outcome {
	p.kind = k
	return unsupported
}

// maxOption is the longest name of an adblock option, in bytes, that is shown.
const maxOption = 20

// optionKind is the kind of an adblock rule with an option: $client=… or
// $~third-party. What cannot be the name of one is not shown.
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
