package lookup

// isSurelyCanonical reports whether a name of eight bytes or more is canonical, as
// nearly all names are. It may return false for a canonical name with bytes other than
// lower-case letters, digits, hyphens and underscores; the caller then takes the slower
// way. It also returns which bytes are dots, bit i for name[i], or 0 if it does not know.
func isSurelyCanonical(name string) (dots uint64, ok bool) {
	if dots, others, ok := scanName(name); ok {
		first, last := uint64(1), uint64(1)<<(len(name)-1)
		return dots, others == 0 && dots&(dots<<1|first|last) == 0
	}
	return 0, isCanonicalByWords(name)
}

// isCanonicalByWords is isSurelyCanonical, eight bytes at a time.
func isCanonicalByWords(name string) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	if len(name) < 8 || name[len(name)-1] == '.' {
		return false
	}
	for i := 0; ; i += 8 {
		i = min(i, len(name)-8) // the last eight bytes may overlap the eight before
		w := word(name[i : i+8])
		if w&high != 0 {
			return false
		}
		// w has no high bit, so the high bit of each byte of a sum says: at least this.
		from2d, from2e, from2f := w+(0x80-'-')*each, w+(0x80-'.')*each, w+(0x80-'/')*each
		dots := from2e &^ from2f & high
		other := ^from2d | from2f&^(w+(0x80-'0')*each) | (w+(0x80-':')*each)&^(w+(0x80-'^')*each) | (w + (0x80-0x7f)*each)
		before := uint64(0)
		if i == 0 || name[i-1] == '.' {
			before = 0x80
		}
		if other&high|dots&(dots<<8|before) != 0 {
			return false
		}
		if i == len(name)-8 {
			return true
		}
	}
}

// dotsBefore returns which of the eight bytes of name before end are dots: the high bit of
// byte k of the result, the lowest being byte 0, is for name[end-8+k]. Fewer bytes count if
// end is less than 8. end is 1 to len(name).
func dotsBefore(name string, end int) uint64 {
	const each, low = 0x0101010101010101, 0x7f7f7f7f7f7f7f7f
	var w uint64
	switch {
	case end >= 8:
		w = word(name[end-8 : end])
	case len(name) >= 8:
		w = word(name[:8]) << (64 - 8*end)
	default:
		for i := range end {
			w |= uint64(name[i]) << (64 - 8*(end-i))
		}
	}
	w ^= '.' * each
	return ^(w&low + low | w | low) // the sum of a byte reaches the high bit unless it is 0
}

// word returns eight bytes as a number, the first one lowest.
func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
