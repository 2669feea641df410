//go:build !unix

package updater

import "os"

// isOurs reports whether a folder is there. The folder for temporary files is the
// user's own here.
func isOurs(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

func noFolder(error) bool { return false }
