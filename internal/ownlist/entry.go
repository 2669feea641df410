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
	name   []byte // canonical; "" with scope below: every name. Valid during the call only.
	scope  scope
	allow  bool
	answer Answer    // of an entry that blocks
	until  time.Time // when it ends; zero: never
}

// Answer is how a list wants a name answered that it blocks.
type Answer uint8

const (
	// AnswerDefault leaves it to the Corefile. It is also what RPZ calls NXDOMAIN,
	// which is the Corefile's default.
	AnswerDefault Answer = iota
	// AnswerNODATA says that the name has no records of the type that was asked.
	AnswerNODATA
	// AnswerRefused refuses the query.
	AnswerRefused
	// AnswerDrop sends no answer at all.
	AnswerDrop
)

// outcome is what came of a line.
type outcome uint8

const (
	nothing     outcome = iota // empty, a comment, or another line that lists no host
	taken                      // its entries were emitted
	localData                  // taken; the line has records of its own, which are not used
	elsewhere                  // it gives names an address that does not block
	unsupported                // well-formed, but this package cannot express it: see parser.kind
	bad                        // in none of the formats
)
