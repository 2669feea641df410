//go:build linux && amd64

package crash

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// disk is a model of a file system that loses what was not synced, as POSIX allows: fsync of a file makes its content durable, not its
// name; fsync of a folder makes the names in it durable. After a power failure
//
//   - of the changes of names since the last sync of their folder, any subset has happened,
//   - a file with writes since its last sync has the content of that sync, all of the new
//     content, the first half of it, or zeros of its length.
//
// A rename happens as a whole or not at all, as every journaling file system has it. A
// program that is right in this model is right on ext4, XFS, btrfs and ZFS, which lose less.
type disk struct {
	folders map[string]*names
}

// file is the content of a file, whatever its name.
type file struct{ synced, now []byte }

// names are the entries of a folder.
type names struct {
	synced  map[string]*file
	now     map[string]*file
	pending []change // since the last sync, in order
}

// change is a change of names in one folder.
type change struct {
	gone string // "": none
	name string // "": none
	file *file
}

func (c change) apply(to map[string]*file) {
	delete(to, c.gone)
	if c.name != "" {
		to[c.name] = c.file
	}
}

// newDisk returns a disk with the folders as they are, all synced.
func newDisk(t *testing.T, folders []string) *disk {
	t.Helper()
	d := &disk{folders: make(map[string]*names)}
	for _, folder := range folders {
		n := &names{synced: make(map[string]*file)}
		entries, err := os.ReadDir(folder)
		testkit.Must(t, err)
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			raw, err := os.ReadFile(filepath.Join(folder, e.Name()))
			testkit.Must(t, err)
			n.synced[e.Name()] = &file{synced: raw, now: raw}
		}
		n.now = maps.Clone(n.synced)
		d.folders[folder] = n
	}
	return d
}

// do applies a call to the disk.
func (d *disk) do(t *testing.T, c call) {
	t.Helper()
	if n, ok := d.folders[c.path]; ok && c.name == "sync" {
		n.synced, n.pending = maps.Clone(n.now), nil
		return
	}
	n, ok := d.folders[filepath.Dir(c.path)]
	if !ok {
		t.Fatalf("The model has no folder for %s", c)
	}
	name := filepath.Base(c.path)
	switch c.name {
	case "create":
		n.change(change{name: name, file: &file{}})
	case "write", "truncate":
		n.now[name].now = c.content
	case "sync":
		n.now[name].synced = n.now[name].now
	case "rename":
		if filepath.Dir(c.to) != filepath.Dir(c.path) {
			t.Fatalf("The model has no renames between folders: %s", c)
		}
		n.change(change{gone: name, name: filepath.Base(c.to), file: n.now[name]})
	case "unlink":
		n.change(change{gone: name})
	case "mode": // not in the model
	default:
		t.Fatalf("The model has no call %s", c)
	}
}

func (n *names) change(c change) {
	c.apply(n.now)
	n.pending = append(n.pending, c)
}

// state is what a power failure may leave: the content of each file, by its path.
type state map[string][]byte

// sum tells states apart.
func (s state) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(s)) {
		content := sha256.Sum256(s[path])
		h.Write([]byte(path + "\x00"))
		h.Write(content[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// afterPowerFailure returns every state that a power failure may leave now.
func (d *disk) afterPowerFailure(t *testing.T) []state {
	t.Helper()
	states := []state{{}}
	for _, folder := range slices.Sorted(maps.Keys(d.folders)) {
		states = together(states, d.folders[folder].afterPowerFailure(t, folder))
	}
	return states
}

// together returns each of some states with each of others.
func together(some, others []state) (all []state) {
	for _, other := range others {
		for _, s := range some {
			both := maps.Clone(s)
			maps.Copy(both, other)
			all = append(all, both)
		}
	}
	return all
}

func (n *names) afterPowerFailure(t *testing.T, folder string) (all []state) {
	t.Helper()
	if len(n.pending) > 12 {
		t.Fatalf("%d changes of names in %s without a sync are too many for the model", len(n.pending), folder)
	}
	for subset := range 1 << len(n.pending) {
		entries := maps.Clone(n.synced)
		for i, c := range n.pending {
			if subset&(1<<i) != 0 {
				c.apply(entries)
			}
		}
		states := []state{{}}
		for name, f := range entries {
			var mine []state
			for _, content := range f.afterPowerFailure() {
				mine = append(mine, state{filepath.Join(folder, name): content})
			}
			states = together(states, mine)
		}
		all = append(all, states...)
	}
	return all
}

// afterPowerFailure returns each content that the file may have.
func (f *file) afterPowerFailure() [][]byte {
	if bytes.Equal(f.synced, f.now) {
		return [][]byte{f.now}
	}
	return [][]byte{f.synced, f.now, f.now[:len(f.now)/2], make([]byte, len(f.now))}
}

// write makes the state of a place real in another one.
func (s state) write(t *testing.T, from, to place) {
	t.Helper()
	for path, content := range s {
		testkit.Must(t, os.WriteFile(strings.Replace(path, from.root, to.root, 1), content, 0o600))
	}
}
