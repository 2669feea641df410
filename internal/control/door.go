package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// unknownPeer is who asks if the system does not tell.
const unknownPeer = "Somebody"

// socketName is the name of the first socket of a folder; other processes' sockets are numbered.
const socketName = "control.sock"

// maxSockets is the most sockets of a folder.
const maxSockets = 100

// nameOf returns the name of the nth socket of a folder, from 0.
func nameOf(n int) string {
	if n == 0 {
		return socketName
	}
	return strings.Replace(socketName, ".", "-"+strconv.Itoa(n+1)+".", 1)
}

// Doors are the doors of a process: one for each folder, however many server blocks have it. A door
// stays open over a reload that names its folder again. The zero value has none; it is safe for
// concurrent use.
type Doors struct {
	mu   sync.Mutex
	open map[string]*door
}

// door is a socket that is served.
type door struct {
	path    string
	socket  fs.FileInfo
	server  *http.Server
	holders int
}

// Open opens a door in a folder, unless it is open already, and returns how to let go of it: with
// the last holder it is closed. opened is the path of a socket that is new, else "".
func (d *Doors) Open(folder string, s Server) (opened string, release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.open[folder]
	if o == nil {
		if o, err = open(folder, s); err != nil {
			return "", nil, err
		}
		if d.open == nil {
			d.open = make(map[string]*door)
		}
		d.open[folder], opened = o, o.path
	}
	o.holders++
	return opened, sync.OnceFunc(func() { d.release(folder, o) }), nil
}

func (d *Doors) release(folder string, o *door) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.holders--; o.holders > 0 {
		return
	}
	delete(d.open, folder)
	if now, err := os.Lstat(o.path); err == nil && os.SameFile(now, o.socket) {
		_ = os.Remove(o.path) // while it lives: no other process puts its own there
	}
	o.server.Close()
}

// open makes a socket in a folder, which is created if need be, and serves it.
func open(folder string, s Server) (*door, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	l, path, err := listen(folder)
	if err != nil {
		return nil, err
	}
	socket, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &door{path: path, socket: socket, server: serve(l, s)}, nil
}

// lockTimeout is how long a start waits for others that open a door in the folder.
const lockTimeout = 2 * time.Second

// listen listens on the first socket of a folder that no living process has. Others do not see it
// before its mode is right and it is listened on. While the folder is locked no other process takes
// a socket that was left behind for its own.
func listen(folder string) (l net.Listener, path string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	unlock, err := files.LockFolder(ctx, folder)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	short, done, err := shortPath(folder)
	if err != nil {
		return nil, "", err
	}
	defer done()
	hidden := "." + socketName + "." + strconv.Itoa(os.Getpid())
	_ = os.Remove(filepath.Join(folder, hidden))
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, hidden), Net: "unix"})
	if err != nil {
		return nil, "", err
	}
	unix.SetUnlinkOnClose(false) // it gets another name
	if err = os.Chmod(filepath.Join(folder, hidden), 0o660); err == nil {
		path, err = name(folder, short, hidden)
	}
	if err != nil {
		unix.Close()
		_ = os.Remove(filepath.Join(folder, hidden))
		return nil, "", err
	}
	return unix, path, nil
}

// name gives a socket the first name that no living process has.
func name(folder, short, hidden string) (path string, err error) {
	for n := range maxSockets {
		path := filepath.Join(folder, nameOf(n))
		info, err := os.Lstat(path)
		if err == nil && (info.Mode().Type() != fs.ModeSocket || lives(filepath.Join(short, nameOf(n)))) {
			continue // of somebody else
		}
		return path, os.Rename(filepath.Join(folder, hidden), path)
	}
	return "", fmt.Errorf("%d processes have a socket in %s", maxSockets, folder)
}

// lives reports whether a process listens on a socket.
func lives(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// maxPath is the most bytes of the path of a socket, with some for the name (unix(7)).
const maxPath = 80

// shortPath returns another path of a folder if its own is too long for a socket, and how to let
// go of it.
func shortPath(folder string) (short string, done func(), err error) {
	if len(folder) <= maxPath {
		return folder, func() {}, nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return "", nil, err
	}
	short = "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if _, err := os.Stat(short); errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return "", nil, fmt.Errorf("the path of %s is too long for a socket", folder)
	}
	return short, func() { f.Close() }, nil
}
