//go:build !unix

package prefixset

import "errors"

// mapBytes is not implemented for this system: newMemory allocates from the heap.
func mapBytes(int) ([]byte, error) { return nil, errors.ErrUnsupported }

// dropPages has nothing to release.
func dropPages([]byte) {}

// unmapBytes has nothing to release, because mapBytes never succeeds.
func unmapBytes([]byte) error { return nil }
