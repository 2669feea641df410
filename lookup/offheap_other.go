//go:build !unix

package lookup

import "errors"

func mapBytes(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapBytes([]byte) error { return nil }
