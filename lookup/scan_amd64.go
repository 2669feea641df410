//go:build gc && !purego

package lookup

import "github.com/klauspost/cpuid/v2"

// byteShuffle says that the processor has the instructions that scan needs.
var byteShuffle = cpuid.CPU.Supports(cpuid.SSSE3)

// scanName is scan for any name. ok is false if the name has no byte or more than 64, or
// if the processor does not have the instructions.
func scanName(name string) (dots, others uint64, ok bool) {
	if uint(len(name)-1) >= 64 || !byteShuffle {
		return 0, 0, false
	}
	dots, others = scan(name)
	return dots, others, true
}
