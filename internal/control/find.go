package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// Where a Corefile is looked for is said here, for all commands; block.Folders says it of a server.

// corefiles are where a Corefile is looked for: where CoreDNS does so without -conf, where this
// project's packages put it, where others do, and where OpenWrt has it.
var corefiles = []string{"Corefile", "/etc/coredns-safebrowsing/Corefile", "/etc/coredns/Corefile", "/var/run/safebrowsing/Corefile"}

// Corefile returns the path of the Corefile of this machine; "": there is none.
func Corefile() string {
	for _, path := range corefiles {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// Usual reports whether a Corefile is where it is looked for.
func Usual(path string) bool { return slices.Contains(corefiles, path) }

// UseCredential lets a key be found where the packages put it: beside the Corefile, unless the service
// manager has given this process its own.
func UseCredential(corefile string) {
	dir := filepath.Dir(corefile)
	if _, err := os.Stat(filepath.Join(dir, "safebrowsing.key")); err == nil && os.Getenv("CREDENTIALS_DIRECTORY") == "" {
		_ = os.Setenv("CREDENTIALS_DIRECTORY", dir)
	}
}

// NotRunningError says that no server answers.
type NotRunningError struct{ Folders []string }

// Error implements error.
func (e *NotRunningError) Error() string {
	return "CoreDNS does not run: no server has a control socket in " + strings.Join(e.Folders, ", ")
}

// Is reports that this is bad news, and no misuse.
func (e *NotRunningError) Is(target error) bool { return target == say.ErrBadNews }

// ForbiddenError says that a server may run, and that this user may not ask it.
type ForbiddenError struct{ Path string }

// Error implements error.
func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("you may not ask the server at %s: use sudo, or be in the group that the socket and its folder have", e.Path)
}

// Find returns a client of the first server that has a door in one of the folders.
func Find(ctx context.Context, folders []string) (*Client, error) {
	var forbidden error
	for _, folder := range folders {
		for n := range maxSockets { // an earlier one may have gone
			path := filepath.Join(folder, nameOf(n))
			_, err := os.Lstat(path)
			if err == nil {
				err = knock(ctx, path)
			}
			if err == nil {
				return newClient(path), nil
			}
			if errors.Is(err, fs.ErrPermission) && forbidden == nil {
				forbidden = &ForbiddenError{path}
			}
		}
	}
	if forbidden != nil {
		return nil, forbidden
	}
	return nil, &NotRunningError{folders}
}

// knock reports whether somebody opens.
func knock(ctx context.Context, path string) error {
	conn, err := dial(ctx, path)
	if err == nil {
		conn.Close()
	}
	return err
}

// dialTimeout is how long a server may take to open.
const dialTimeout = 2 * time.Second

func dial(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortPath(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer done()
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", filepath.Join(short, filepath.Base(path)))
}
