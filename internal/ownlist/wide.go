package ownlist

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// maxSuffix is the most bytes of a public suffix that wide finds.
const maxSuffix = 40

// wide says in words what an entry does if it matches a whole public suffix, such as com
// or co.uk, or every name: "blocks the whole top-level domain com". For all other entries
// it returns "".
//
// It looks for suffixes of several labels only under country codes, where nearly all of
// them are. The lookup takes longer than the rest of a line.
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
