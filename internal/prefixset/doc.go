// Package prefixset holds beginnings of SHA-256 hashes, 4 to 32 bytes each, in
// little memory: ten million of four bytes in 14 MB.
//
//	ascending entries ──▶ Builder ──▶ Set ──Match──▶ width of the entry, or 0
//	                file ──Read─────▶  │  ──WriteTo──▶ file
//	                                   │  ──Runs, Reader──▶ entries, ascending
//	                                   ▼
//	               Group, of several Sets ──Suspects──▶ which hashes one may hold
//	                                   │
//	                                   ▼
//	                Join: one Group of blocks and members, which the Sets share
//
//	Set      entries of 4 bytes: blocks; of each other width: wide
//	blocks   a directory of buckets, then the low bits of each entry
//	members  of joined sets: to which of them each entry belongs
//	wide     an index of the leading bytes, then the tails of the entries
//	filter   of a Group: over all entries if there are few, else over the wide ones
//	memory   holds all these, outside the collector's heap
//
// A Set is exact, and so is a Group of entries of 4 bytes without a filter. A filter is not: for most hashes that no
// Set holds it says so, faster than a Set.
//
// blocks are a form of Elias-Fano coding (P. Elias, "Efficient storage and
// retrieval by content and address of static files", 1974; S. Vigna,
// "Quasi-succinct indices", 2013). The search for the bit of a word that has a
// given rank is from S. Vigna, "Broadword implementation of rank/select queries",
// 2008. A filter is a Bloom filter (B. Bloom, 1970) with all bits of an entry in one word,
// after F. Putze, P. Sanders and J. Singler, who put them into one cache line ("Cache-,
// hash- and space-efficient Bloom filters", 2007). A multiplication by the golden ratio
// spreads the bits (D. Knuth, The Art of Computer Programming, volume 3, section 6.4).
//
// The package allocates memory from the system and lowers the collector's limit
// ($GOMEMLIMIT) by as much. It does not log, opens no file, and imports no other package of
// this module.
package prefixset
