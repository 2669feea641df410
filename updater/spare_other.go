//go:build !unix

package updater

import "os"

// isOurs reports whether dir is a folder. On these systems the folder for temporary
// files belongs to the user.
func isOurs(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir()
}

// noFolder reports false: these systems have no such errors.
func noFolder(error) bool { return false }
