package ownlist

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// maxSuffix is the longest public suffix that is looked for, in bytes.
const maxSuffix = 40

// wide says in words what an entry does that is about a whole public suffix, such
// as com or co.uk, or about all names: "blocks the whole top-level domain com".
// It returns "" for other entries.
//
// Suffixes of more than one label are looked for under country codes only, where
// nearly all of them are: that takes longer than the rest of a line.
func (e entry) wide() string {
	does := "blocks"
	if e.allow {
		does = "allows"
	}
	if len(e.name) == 0 {
		return does + " every name"
	}
	n := labels(e.name)
	if len(e.name) > maxSuffix || n > 3 || n > 1 && (e.scope&below == 0 || e.name[max(0, len(e.name)-3)] != '.') {
		return ""
	}
	name := string(e.name)
	suffix, icann := publicsuffix.PublicSuffix(name)
	switch {
	case !icann || suffix != name:
		return ""
	case e.scope&below == 0:
		return fmt.Sprintf("%s the name %s itself, but no name below it: to %s these too, write .%s", does, name, strings.TrimSuffix(does, "s"), name)
	case strings.Contains(name, "."):
		return fmt.Sprintf("%s the whole public suffix %s", does, name)
	}
	return fmt.Sprintf("%s the whole top-level domain %s", does, name)
}
