package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The schedule must outlive a crash even if the folder of the lists is read-only, as in
// a container. Otherwise a loop of crashes would be a loop of requests. A few hundred
// bytes find a place nearly everywhere.

// spareFolders returns the folders for a schedule that cannot be saved in the folder
// of its lists. The first writable one is used. They are meant for files of running programs;
// the last one is in memory and exists in every container.
func spareFolders() (all []string) {
	for _, dir := range []string{os.Getenv("RUNTIME_DIRECTORY"), os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/dev/shm"} {
		if filepath.IsAbs(dir) {
			all = append(all, filepath.Join(dir, fmt.Sprintf("coredns-safebrowsing-%d", os.Getuid())))
		}
	}
	return all
}

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
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			files = append(files, filepath.Join(dir, s.spareFile(name)))
		}
	}
	return files
}

// save replaces a file in the folder of the lists, or else in a spare folder. It
// returns the path of that file, "" if none could be written, and the error of the
// folder of the lists.
func (s *Store) save(name string, raw []byte) (file string, err error) {
	write := func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	}
	if err = s.replace(name, write); err == nil {
		return filepath.Join(s.dir, name), nil
	}
	for _, dir := range spareFolders() {
		if os.MkdirAll(dir, 0o700) != nil || !isOurs(dir) {
			continue
		}
		if newStore(dir, s.origin).replace(s.spareFile(name), write) == nil {
			return filepath.Join(dir, s.spareFile(name)), err
		}
	}
	return "", err
}

// removeSpare removes a file from all spare folders.
func (s *Store) removeSpare(name string) {
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			os.Remove(filepath.Join(dir, s.spareFile(name)))
		}
	}
}
