package ownlist

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// scope says which names an entry matches, as bits.
type scope uint8

const (
	exact scope = 1 << iota // the name itself
	below                   // the names below it
	tree  = exact | below
)

// entry is the rule of one name of a line.
type entry struct {
	name     []byte // canonical; "" with scope below: every name. Valid only during the call of emit.
	scope    scope
	allow    bool
	response lookup.Response // of an entry that blocks
	until    time.Time       // when it expires; zero: never
}

// outcome is the result of parsing a line. If the names of a line differ, the greatest
// outcome counts.
type outcome uint8

const (
	nothing     outcome = iota // empty, a comment, or another line without a host
	listed                     // its entries were emitted
	localData                  // its entries were emitted; the record itself is never sent
	elsewhere                  // it gives names an address that does not block
	unsupported                // well-formed, but this package cannot express it, see parser.kind
	bad                        // in none of the formats
)
