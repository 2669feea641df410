//go:build !unix

package prefixset

import "errors"

func mapBytes(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapBytes([]byte) error { return nil }
