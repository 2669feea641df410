package control

import (
	"errors"
	"io/fs"
	"syscall"
)

// refused reports whether nobody listens on a socket.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
