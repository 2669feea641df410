//go:build unix

package updater

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// isOurs reports whether dir is a folder of this user, closed to all others. The folder
// around it may be open to them, as /tmp is.
func isOurs(dir string) bool {
	// Lstat, not Stat: a link that another user made must not lead our files elsewhere.
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&0o077 == 0 && files.Owner(info) == strconv.Itoa(os.Getuid())
}

// noFolder reports whether a file cannot be opened because its folder is not a folder,
// or is closed to this user. It counts as absent then.
func noFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}
