package ownlist

import "time"

// scope says which names an entry stands for, as bits.
type scope uint8

const (
	exact scope = 1 << iota // the name itself
	below                   // the names below it
	tree  = exact | below
)

// entry is what one name of a line says.
type entry struct {
	name  []byte // canonical; "" with scope below: every name. Valid during the call only.
	scope scope
	allow bool
	until time.Time // when it ends; zero: never
}

// outcome is what came of a line.
type outcome uint8

const (
	nothing outcome = iota // empty, a comment, or another line that lists no host
	taken                  // its entries were emitted
	skipped                // well-formed, but says what DNS cannot see or this package cannot express
	bad                    // in none of the formats
)
