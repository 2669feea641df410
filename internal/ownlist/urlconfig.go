package ownlist

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// The defaults and the ranges of Config.
const (
	DefaultRefresh  = 24 * time.Hour
	MinRefresh      = time.Minute
	MaxRefresh      = 30 * 24 * time.Hour
	DefaultMaxBytes = 256 << 20
	MinMaxBytes     = 1 << 10
	MaxMaxBytes     = 4 << 30
)

// maxEntries is the most entries of a list. They take 170 MiB.
const maxEntries = 20_000_000

// URLConfig says which list is fetched, and how. It is comparable.
type URLConfig struct {
	URL       string        // https or http, see ParseURL; "": no list
	DB        string        // directory whose subdirectory Folder holds the list; "": a temporary one, until the last Close
	Resolvers string        // "address:port" of name servers, joined by a space; "": the system's
	Refresh   time.Duration // between fetches, ± 30 %; zero: DefaultRefresh
	Wide      bool          // lines that match every name or a whole public suffix count, too
	MaxBytes  int64         // of the list, compressed and decompressed; zero: DefaultMaxBytes
}

// URLFolder is the subdirectory of a db that holds lists by URL.
const URLFolder = "own"

// ParseURL checks the URL of a list. Its errors do not quote the URL.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL cannot be read: write one such as https://lists.example.org/hosts.txt, with % as %25")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("a list is fetched by https or http, not by " + u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host: write one such as https://lists.example.org/hosts.txt")
	case u.Fragment != "":
		return nil, errors.New("the URL has a #: leave out what follows it, servers never see that")
	}
	return u, nil
}

// Name returns what logs, metrics and answers call the list: the URL without its query and
// its user information, which may be secret. If it has one of these, four digits of a hash
// keep lists apart that differ only in them.
func (c URLConfig) Name() string {
	u, err := ParseURL(c.URL)
	if err != nil {
		return "(not a URL)"
	}
	name := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if u.User != nil || u.RawQuery != "" {
		name += "#" + c.hash()[:4]
	}
	return name
}

// Path returns the file of the list, or "" without a DB.
func (c URLConfig) Path() string {
	if c.DB == "" {
		return ""
	}
	return c.pathIn(filepath.Join(c.DB, URLFolder))
}

func (c URLConfig) pathIn(dir string) string { return filepath.Join(dir, c.hash()+listSuffix) }

func (c URLConfig) hash() string {
	sum := sha256.Sum256([]byte(c.URL))
	return hex.EncodeToString(sum[:16])
}

const listSuffix = ".list"

// stateOf returns the path of the state file of a list file.
func stateOf(path string) string { return strings.TrimSuffix(path, listSuffix) + ".json" }

// secrets returns the parts of the URL that must be in no text, as they are written and
// as they are decoded.
func secrets(text string) (all []string) {
	u, err := ParseURL(text)
	if err != nil {
		return []string{text}
	}
	all = append(all, u.RawQuery)
	if q, err := url.QueryUnescape(u.RawQuery); err == nil {
		all = append(all, q)
	}
	for _, values := range u.Query() {
		all = append(all, values...)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		all = append(all, u.User.String(), u.User.Username(), password)
	}
	return all
}
