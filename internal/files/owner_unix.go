//go:build unix

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Owner returns the number of the user whose file it is; "": it is not known.
func Owner(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(s.Uid)
	}
	return ""
}

// Private reports whether dir is a folder of this user, closed to all others. The folder around it may be open to them, as
// /tmp is. A link that another user made must not lead our files elsewhere.
func Private(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&0o077 == 0 && Owner(info) == fmt.Sprint(os.Getuid())
}

// NoFolder reports whether a file cannot be opened because its folder is none, or is closed to this user.
func NoFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// ownLike gives a new file the owner and the group of another one.
func ownLike(f *os.File, like fs.FileInfo) error {
	want, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if got, ok := info.Sys().(*syscall.Stat_t); ok && got.Uid == want.Uid && got.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}

// ownLikeFolder gives a new file that root makes in the folder of another user to that one.
func ownLikeFolder(f *os.File) {
	info, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if folder, ok := info.Sys().(*syscall.Stat_t); ok && folder.Uid != 0 {
		_ = f.Chown(int(folder.Uid), int(folder.Gid))
	}
}
