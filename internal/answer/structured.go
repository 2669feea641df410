package answer

import (
	"encoding/json"
	"slices"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Structured says how to answer clients that ask for structured DNS errors
// (draft-ietf-dnsop-structured-dns-error): with JSON in the text of the Extended
// DNS Error. The zero value never does. All that depends on the
// draft is in this file.
type Structured struct {
	Code     uint16   // of the EDNS option by which a client asks; 0: off
	Contacts []string // URIs of schemes mailto and tel
}

// Sub-errors of the draft.
const (
	suberrorMalware     = 1
	suberrorPhishing    = 2
	suberrorSpyware     = 4
	suberrorDNSOperator = 6 // policy of the operator of this DNS server
)

// structuredError is the JSON of the draft.
type structuredError struct {
	Contacts      []string `json:"c,omitempty"`
	Justification string   `json:"j,omitempty"`
	Suberror      int      `json:"s,omitempty"`
	Language      string   `json:"l,omitempty"` // demanded where there is a justification
}

// asked reports whether the client asked for a structured error. It does so by an
// option, whose data must be ignored.
func (s Structured) asked(r *dns.Msg) bool {
	opt := r.IsEdns0()
	return s.Code != 0 && opt != nil && slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool { return o.Option() == s.Code })
}

// maxStructured is the longest JSON, in bytes.
const maxStructured = 512

// structured returns the JSON about a decision, the longest first: what does not fit
// into an answer over UDP gives way to the next one, and the last one is "". The draft demands
// that j is left out before the text as a whole: contacts and sub-error stay. What Google says departs from
// that: a sub-error without Google's words would be a warning without its attribution, which the
// Safe Browsing terms forbid. There the contacts go first, then all.
func (p Reply) structured(d lookup.Decision) (all []string) {
	full := structuredError{Contacts: p.Structured.Contacts, Justification: p.Reason(d), Suberror: suberrorOf(d), Language: "en"}
	variants := []structuredError{full}
	if p.saidByGoogle(d) {
		variants = append(variants, structuredError{Justification: full.Justification, Suberror: full.Suberror, Language: full.Language})
	} else {
		variants = append(variants, structuredError{Contacts: full.Contacts, Suberror: full.Suberror}, structuredError{Suberror: full.Suberror})
	}
	if len(full.Contacts) == 0 {
		variants = slices.Delete(variants, 1, 2) // it equals its neighbour
	}
	for _, e := range variants {
		if raw, err := json.Marshal(e); err == nil && len(raw) <= maxStructured {
			all = append(all, string(raw))
		}
	}
	return append(all, "")
}

func suberrorOf(d lookup.Decision) int {
	switch d.Threat {
	case lookup.Malware, lookup.PotentiallyHarmfulApplication:
		return suberrorMalware
	case lookup.SocialEngineering:
		return suberrorPhishing
	case lookup.UnwantedSoftware:
		return suberrorSpyware
	}
	return suberrorDNSOperator
}
