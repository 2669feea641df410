package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// The schedule must outlive a crash even if the folder of the lists is read-only, as in
// a container. Otherwise a loop of crashes would be a loop of requests. A few hundred
// bytes find a place nearly everywhere.

// spareFile returns the name of a file in a spare folder. It contains a hash of the
// store's own folder, because several stores may share the spare folder.
func (s *Store) spareFile(name string) string {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		dir = s.dir
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + "-" + name
}

// filesOf returns the paths where a file of this name may be: in the folder of the
// lists, and in the spare folders.
func (s *Store) filesOf(name string) []string {
	files := []string{filepath.Join(s.dir, name)}
	if dir := spareFolder(); isOurs(dir) {
		files = append(files, filepath.Join(dir, s.spareFile(name)))
	}
	return files
}
