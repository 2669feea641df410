package block

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// A process has its door in a folder, see internal/control, and programs look for it there.

// stateFolder is where services of the packages have their lists, and runtimeFolder their doors.
const stateFolder, runtimeFolder = "/var/lib/coredns-safebrowsing", "/run/coredns-safebrowsing"

// Folder returns where the door of the block is: the folder of the service manager for sockets and the
// like, else the folder of the lists. "": nowhere.
func (b *Block) Folder() string { return cmp.Or(files.RuntimeFolder(), b.Config.PauseFolder()) }

// Folders returns where doors are looked for unless a Corefile says it: in $RUNTIME_DIRECTORY alone if
// that is set.
func Folders() (all []string) {
	if runtime := files.RuntimeFolder(); runtime != "" {
		return []string{runtime}
	}
	lists, _ := config.DefaultFolder()
	for _, folder := range []string{runtimeFolder, "/var/run/safebrowsing", lists, stateFolder} {
		if folder != "" && !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	}
	return all
}

// Beside returns where the door of a server is that has its lists in a folder.
func Beside(folder string) []string {
	if filepath.Clean(folder) == stateFolder {
		return []string{runtimeFolder, folder}
	}
	return []string{folder}
}
