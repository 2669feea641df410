//go:build unix

package updater

import (
	"errors"
	"os"
	"syscall"
)

// isOurs reports whether a folder is one that nobody else can write to: other
// users may write to the folder that it is in.
func isOurs(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// noFolder reports whether a file cannot be had since its folder is none, or is
// closed to us.
func noFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}
