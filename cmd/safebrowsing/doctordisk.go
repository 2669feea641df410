package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Bounds in bytes for lists that have not been fetched yet.
const (
	usualMemory = 10_000_000 * 22 / 10 // ten million entries, the most that Google plans, of 2.2 bytes
	minSpace    = 100 << 20
)

// folder examines the room for the lists, on disk and in memory.
func (e *examination) folder(o *block.Block) {
	if len(o.Settings.Stored()) == 0 {
		e.tell(diagnosis{"folder", isOK, "no lists are kept in this mode", ""})
		return
	}
	if o.Config.DB == "" {
		e.tell(diagnosis{"folder", isWarning, "lists are kept in memory only: each start must fetch them again, and there is no protection before", "set db FOLDER in the stanza"})
	} else {
		e.tell(folderDiagnosis(o.Config.DB))
		e.tell(spaceDiagnosis(o.Config.DB))
	}
	e.tell(memoryDiagnosis(o.Config.DB, e.answers, availableMemory))
}

// folderDiagnosis says whether a folder is writable and survives a reboot.
func folderDiagnosis(dir string) diagnosis {
	if file := files.InTheWay(dir); file != "" {
		return diagnosis{"folder", isProblem, text(fmt.Sprintf("cannot write to %s: %s is not a directory", dir, file)),
			text("move " + file + " away, or set db to a directory that CoreDNS may write to")}
	}
	there := existing(dir)
	if err := tryWriting(there); err != nil {
		return diagnosis{"folder", isProblem, text(fmt.Sprintf("cannot write to %s: %v", there, err)), writeAdvice(err)}
	}
	kind, volatile := fileSystem(there)
	switch {
	case volatile:
		return diagnosis{"folder", isWarning, text(fmt.Sprintf("%s is kept in memory (%s): lists are lost at a reboot", there, kind)), "set db to a folder on a disk"}
	case there != dir:
		return diagnosis{"folder", isOK, text(fmt.Sprintf("%s does not exist yet, but can be created in %s", dir, there)), ""}
	}
	return diagnosis{"folder", isOK, text(dir + " is writable, and lists there survive a restart"), ""}
}

// moreSpace is the advice for a disk that is full.
const moreSpace = "free some space, or set db to another disk"

// writeAdvice says what to do about a folder that cannot be written.
func writeAdvice(err error) text {
	if errors.Is(err, syscall.ENOSPC) {
		return moreSpace
	}
	return "make the user of CoreDNS the owner of the folder, and let its service write there (ReadWritePaths or StateDirectory of systemd)"
}

// existing returns the folder, or the nearest folder above it that exists. The doctor does
// not create the folder: it could belong to the wrong user.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// tryWriting writes a file as the updater does: write, sync, rename. Then it removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, "doctor.*.tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteString("written by safebrowsing doctor; you may delete it\n")
	err = errors.Join(err, f.Sync(), f.Close())
	renamed := f.Name() + ".renamed.tmp"
	if err == nil {
		err = os.Rename(f.Name(), renamed)
	}
	os.Remove(f.Name())
	os.Remove(renamed)
	return err
}

// spaceDiagnosis says whether the disk has room for new lists while the old ones still
// exist.
func spaceDiagnosis(dir string) diagnosis {
	free, ok := freeSpace(existing(dir))
	if !ok {
		return diagnosis{"space", isSkipped, "not known on this system", ""}
	}
	if need := minSpace + heldBytes(dir); free < need {
		return diagnosis{"space", isProblem, text(fmt.Sprintf("%s free at %s, an update may need %s", say.Size(free), dir, say.Size(need))), moreSpace}
	}
	return diagnosis{"space", isOK, text(say.Size(free) + " free"), ""}
}

// heldBytes returns how many bytes the lists in a folder take.
func heldBytes(dir string) (n uint64) {
	all, _ := updater.Status(dir)
	for _, s := range all {
		n += uint64(s.Bytes)
	}
	return n
}

// memoryDiagnosis says whether the lists fit into memory twice, as during an update. A server that runs has them
// there once.
func memoryDiagnosis(dir string, running bool, available func() (uint64, bool)) diagnosis {
	held := heldBytes(dir)
	need, what := 2*held, "the lists take "+say.Size(held)
	switch {
	case held == 0:
		need, what = 2*usualMemory, "no list has been fetched yet; lists take about "+say.Size(usualMemory)
	case running:
		need = held
	}
	what += ", twice that during an update"
	free, ok := available()
	switch {
	case !ok:
		return diagnosis{"memory", isSkipped, text(what + "; available memory is not known on this system"), ""}
	case free < need:
		return diagnosis{"memory", isProblem, text(fmt.Sprintf("%s; %s are available", what, say.Size(free))), "use fewer lists, set max_entries, use mode nostorage, or add memory"}
	}
	return diagnosis{"memory", isOK, text(fmt.Sprintf("%s; %s are available", what, say.Size(free))), ""}
}
