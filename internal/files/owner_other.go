//go:build !unix

package files

import (
	"io/fs"
	"os"
)

// Owner returns nothing: here users have no numbers.
func Owner(fs.FileInfo) string { return "" }

// Private reports whether dir is a folder. On these systems the folder for temporary files belongs to the user.
func Private(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// NoFolder reports false: these systems have no such errors.
func NoFolder(error) bool { return false }

// Here a file has the owner of its folder.

func ownLike(*os.File, fs.FileInfo) error { return nil }

func ownLikeFolder(*os.File) {}
