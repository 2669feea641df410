package lookup

// suspected reports whether a list holds a suffix of the host, or the cache may hold
// a threat for one.
func (c *Checker) suspected(h Host, current *snapshot) bool {
	var hashes [maxDottedSums]FullHash
	if n := sumDotted(&hashes, h.name, h.dots()); n > 0 {
		return c.suspectedOf(hashes[:n], current)
	}
	return c.suspectedAny(h, current)
}

// suspectedAny is suspected for any host.
func (c *Checker) suspectedAny(h Host, current *snapshot) bool {
	var startBuf [maxLabelsWithoutPSL]int
	var hashes [maxLabelsWithoutPSL]FullHash
	starts := h.suffixStarts(startBuf[:0], c.rule)
	sumSuffixes(hashes[:], h.name, starts)
	return c.suspectedOf(hashes[:len(starts)], current)
}

// suspectedOf is suspected for the hashes of a host.
func (c *Checker) suspectedOf(hashes []FullHash, current *snapshot) bool {
	return current.holdsAny(hashes) || c.cache.mayThreatenAny(hashes)
}
