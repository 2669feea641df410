package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// Client asks a server over its door. It is safe for concurrent use.
type Client struct {
	Socket string // the path of the door
	http   http.Client
}

func newClient(socket string) *Client {
	return &Client{Socket: socket, http: http.Client{
		Timeout: callTimeout + dialTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
		},
	}}
}

// Report finds a server that has a door in one of the folders, and returns what it says about itself.
func Report(ctx context.Context, folders []string) (r status.Report, err error) {
	client, err := Find(ctx, folders)
	if err == nil {
		_, err = client.Get(ctx, "/status", nil, &r)
	}
	return r, err
}

// Listings asks what is known about prefixes, see block.Process.
func (c *Client) Listings(ctx context.Context, q block.Question) (l block.Listings, err error) {
	_, err = c.Post(ctx, "/listed", q, &l)
	return l, err
}

// Confirm asks to confirm prefixes, see block.Process.
func (c *Client) Confirm(ctx context.Context, q block.Question) (d block.Confirmed, err error) {
	_, err = c.Post(ctx, "/confirm", q, &d)
	return d, err
}

// maxAnswer is the most bytes of an answer.
const maxAnswer = 16 << 20

// Get asks, and returns the JSON of the answer, which is also decoded into v.
func (c *Client) Get(ctx context.Context, path string, query url.Values, v any) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://door"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return c.do(r, v)
}

// Post asks for a change, and returns the JSON of the answer, which is also decoded into v.
func (c *Client) Post(ctx context.Context, path string, body, v any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://door"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return c.do(r, v)
}

func (c *Client) do(r *http.Request, v any) ([]byte, error) {
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the server at %s: %w", c.Socket, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("asking the server at %s: %w", c.Socket, err)
	}
	if response.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(text, &f) != nil || f.Error == "" {
			f.Error = "the server at " + c.Socket + " answers " + response.Status
		}
		return nil, &RefusedError{f.Error, response.StatusCode}
	}
	return text, json.Unmarshal(text, v)
}

// RefusedError is what a server answers instead of doing something.
type RefusedError struct {
	Text string
	Code int // of HTTP
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Text }

// waitFor is how long a program waits for a server in all.
const waitFor = callTimeout + 2*time.Second

// Where a Corefile is looked for is said here, for all commands; block.Folders says it of a server.

// packageFolder is where the packages have their Corefile, and files of credentials.
const packageFolder = "/etc/coredns-safebrowsing"

// corefiles are where a Corefile is looked for: where CoreDNS does so without -conf, where this
// project's packages put it, where others do, and where OpenWrt has it.
var corefiles = []string{"Corefile", packageFolder + "/Corefile", "/etc/coredns/Corefile", "/var/etc/safebrowsing/Corefile"}

// Corefile returns the path of the Corefile of this machine; "": there is none. Root is led to none that another user
// may have put where it works, as in /tmp: a command that tries the key would send it to a server of theirs.
func Corefile() string {
	for _, path := range corefiles {
		if !filepath.IsAbs(path) && os.Geteuid() == 0 && !(roots(".") && roots(path)) {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// roots reports whether a file belongs to root, or to whoever is root by sudo, and not everybody may write it.
func roots(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner := files.Owner(info)
	return (owner == "0" || owner == os.Getenv("SUDO_UID")) && info.Mode().Perm()&0o002 == 0
}

// Usual reports whether a Corefile is in one of the folders where it is looked for.
func Usual(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && slices.Contains(corefiles, path)
}

// UseCredential lets credentials be found where the packages put them: beside the Corefile, unless the service
// manager has given this process its own. Elsewhere a key is a sign of them.
func UseCredential(corefile string) {
	dir, _ := filepath.Abs(filepath.Dir(corefile))
	_, err := os.Stat(filepath.Join(dir, "safebrowsing.key"))
	if (err == nil || dir == packageFolder) && os.Getenv("CREDENTIALS_DIRECTORY") == "" {
		_ = os.Setenv("CREDENTIALS_DIRECTORY", dir)
	}
}

// NotRunningError says that no server answers.
type NotRunningError struct {
	Folders []string
	Unread  error // see Command; not nil: a server may run elsewhere
}

// Error implements error.
func (e *NotRunningError) Error() string {
	if e.Unread != nil {
		return fmt.Sprintf("the Corefile, which says where the control socket is, cannot be read: %v. Correct it, use sudo, or name the folder of the lists by -db", e.Unread)
	}
	return "CoreDNS does not run: no server has a control socket in " + strings.Join(e.Folders, ", ") + ". If one runs, its log says where its socket is, or why it has none"
}

// Is reports that this is bad news, and no misuse.
func (e *NotRunningError) Is(target error) bool { return target == say.ErrBadNews && e.Unread == nil }

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
			var conn net.Conn
			if err == nil {
				conn, err = dial(ctx, path)
			}
			if err == nil { // somebody opens
				conn.Close()
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
	return nil, &NotRunningError{Folders: folders}
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
