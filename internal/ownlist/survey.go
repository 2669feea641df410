package ownlist

import "io"

// Survey reads a list to its end and keeps nothing of it: it takes the same memory for any
// number of entries. Summary.Entries counts a name once for each time that it occurs. names
// is equal for lists with the same entries in any order, and probably not for others; it
// does not depend on the process. Survey returns the error of reading r.
func Survey(r io.Reader, c Config) (sum Summary, names uint64, err error) {
	err = scan(r, c, &sum, func(e entry) {
		sum.Entries++
		names += e.sum()
	})
	return sum, names, err
}

// sum returns a hash of the entry: 64-bit FNV-1a, which hash/fnv would compute through an
// interface.
func (e entry) sum() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, c := range e.name {
		h = (h ^ uint64(c)) * prime
	}
	says := uint64(e.scope)<<8 | uint64(e.response)<<16
	if e.allow {
		says |= 1
	}
	h = (h ^ says) * prime
	if !e.until.IsZero() {
		h = (h ^ uint64(e.until.Unix())) * prime
	}
	return h ^ h>>32
}
