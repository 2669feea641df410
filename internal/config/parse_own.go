package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) blockFiles(args []string) error {
	args, err := p.urls(args, false)
	if err != nil {
		return err
	}
	for _, name := range args {
		err := p.ownFile(name, false)
		switch missing := errors.Is(err, errNoFile); {
		case missing && isURLWord(name):
			return fmt.Errorf("%s is for lists by URL: a file is read again when it changes", name)
		case missing && !p.namesFile(name):
			return fmt.Errorf("%w; block takes files: write the name into one", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("there is no file")

// ownFile adds a file. It must be readable now; ownlist.Open loads it.
func (p *parser) ownFile(name string, allow bool) error {
	path := p.path(name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isNetwork(name):
		return fmt.Errorf("%s is a network: lists hold names that are asked for; for clients use the plugins view or acl", name)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s", errNoFile, path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name the files in it", path)
	case !info.Mode().IsRegular(): // opening a named pipe would block
		return fmt.Errorf("%s is not a regular file: a list is read again when it changes, and must be one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	f.Close()
	return p.own(OwnFile{Path: path, Allow: allow}, name)
}

// own adds a list of the operator's own, which the Corefile calls name. It is an error if the
// same list is there for the opposite: allow wins, and so nothing in it would be blocked.
func (p *parser) own(f OwnFile, name string) error {
	words := map[bool]string{false: "block", true: "allow"}
	for i, other := range p.Own {
		if other.Allow != f.Allow && other.same(f) {
			return fmt.Errorf("%s is a list of %s at %s, too: allow wins, so it would block nothing; remove one of the two", name, words[other.Allow], p.ownAt[i])
		}
	}
	p.Own, p.ownAt = append(p.Own, f), append(p.ownAt, p.here())
	return nil
}

// same reports whether two lists have one file or one URL.
func (f OwnFile) same(other OwnFile) bool {
	if f.Fetch.URL != "" || other.Fetch.URL != "" {
		return f.Fetch.URL == other.Fetch.URL
	}
	return SameFile(f.Path, other.Path)
}

// SameFile reports whether two paths name one file. Equal paths do, also while another program
// replaces the file: it would be another one from one look to the next.
func SameFile(a, b string) bool {
	wholeA, errA := filepath.Abs(a)
	wholeB, errB := filepath.Abs(b)
	if errA == nil && errB == nil && wholeA == wholeB {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// allowed reads files and hosts, a host with until when it is allowed.
func (p *parser) allowed(args []string) error {
	args, err := p.urls(args, true)
	if err != nil {
		return err
	}
	for len(args) > 0 {
		arg, until, rest, err := cutUntil(args)
		if err != nil {
			return err
		}
		args = rest
		switch isFile := p.namesFile(arg) && arg != "."; {
		case isFile && until != "":
			err = fmt.Errorf("until is for hosts: in the file %s end a line in \"# until %s\"", arg, until)
		case isFile:
			err = p.allowFile(arg)
		default:
			err = p.allowHost(arg, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutUntil cuts off the first argument, and "until" with its time if they follow it;
// else until is "".
func cutUntil(args []string) (arg, until string, rest []string, err error) {
	arg, rest = args[0], args[1:]
	switch timed := len(rest) > 0 && strings.EqualFold(rest[0], "until"); {
	case strings.EqualFold(arg, "until"):
		return "", "", nil, errors.New("until needs a host before it, such as good.example.org until 2027-01-31")
	case !timed:
		return arg, "", rest, nil
	case rest[0] != "until":
		return "", "", nil, fmt.Errorf("%q: did you mean until?", rest[0])
	case len(rest) == 1:
		return "", "", nil, errors.New("until needs a date after it, such as 2027-01-31")
	}
	return arg, rest[1], rest[2:], nil
}

// allowFile adds a file of allowed names.
func (p *parser) allowFile(arg string) error {
	err := p.ownFile(arg, true)
	if errors.Is(err, errNoFile) && !strings.ContainsRune(arg, '/') {
		return fmt.Errorf("%w (to allow a host of that name write %s.)", err, arg)
	}
	return err
}

// allowHost adds a host, "*." and a domain for all names below it, or "." and a
// domain for both, as lines of a file mean them.
func (p *parser) allowHost(arg, until string) (err error) {
	if arg == "." || arg == "*" || arg == "*." {
		return fmt.Errorf("%q would allow every name: remove safebrowsing instead", arg)
	}
	var e ownlist.HostEntry
	name, below := strings.CutPrefix(arg, "*.")
	if e.Below = below; !below {
		name = strings.TrimPrefix(arg, ".")
	}
	if e.Host, err = p.host(name); err != nil {
		return err
	}
	if until != "" {
		if e.Until, err = p.until(arg, until); err != nil {
			return err
		}
	}
	if !strings.Contains(arg, ".") {
		p.here().warn(p, "allow %s is for the host of that name, since there is no file %s: write %s. to say so", arg, p.path(arg), arg)
	} else if info, err := os.Stat(p.path(arg)); err == nil && !info.IsDir() {
		p.here().warn(p, "allow %s is for the host of that name, and not for the file: write %s. to say so, or ./%s for the file", arg, arg, arg)
	}
	p.Hosts = append(p.Hosts, e)
	return nil
}

// until reads when a host stops being allowed. A time in the past is a warning and
// not an error: an old exception must not keep DNS from starting.
func (p *parser) until(host, text string) (time.Time, error) {
	end, err := ownlist.ParseUntil(text, time.Local)
	if err != nil {
		return end, err
	}
	if !time.Now().Before(end) {
		p.here().warn(p, "allow %s until %s has ended: %s is not allowed any more; remove it, or write a later date", host, text, host)
		return end, nil
	}
	p.note("%s is allowed until %s", host, say.Time(end))
	return end, nil
}

// urls adds the lists by URL of a line, with what the line says about them, and returns the
// other arguments. On a line without a URL, refresh, max_bytes and wide are files or hosts.
func (p *parser) urls(args []string, allow bool) (others []string, err error) {
	if !slices.ContainsFunc(args, isURL) {
		return args, nil
	}
	c := ownlist.URLConfig{Refresh: ownlist.DefaultRefresh, MaxBytes: ownlist.DefaultMaxBytes}
	var urls []string
	for i := 0; i < len(args); i++ {
		switch word := args[i]; {
		case isURL(word):
			urls = append(urls, word)
		case word == wideWord:
			c.Wide = true
		case !isURLWord(word):
			others = append(others, word)
		case i+1 == len(args):
			return nil, fmt.Errorf("%s needs a value after it, such as refresh 24h or max_bytes 64MiB", word)
		default:
			if i++; word == "refresh" {
				c.Refresh, err = duration(args[i], ownlist.MinRefresh, ownlist.MaxRefresh)
			} else {
				c.MaxBytes, err = size(args[i], ownlist.MinMaxBytes, ownlist.MaxMaxBytes)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
	}
	for _, text := range urls {
		c.URL = text
		if err := p.listURL(c, allow); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// isURLWord reports whether a word says how a list by URL is fetched.
func isURLWord(arg string) bool { return arg == "refresh" || arg == "max_bytes" || arg == wideWord }

// wideWord lets a list by URL have lines about every name or whole public suffixes.
const wideWord = "wide"

func isURL(arg string) bool { return strings.Contains(arg, "://") }

// listURL adds a list by URL. finish completes it.
func (p *parser) listURL(c ownlist.URLConfig, allow bool) error {
	u, err := ownlist.ParseURL(c.URL)
	if err == nil {
		err = checkListURL(u)
	}
	if err != nil {
		return err
	}
	if allow { // perhaps the address of a page that is to be allowed
		p.note("%s is fetched as a list of names that are allowed; to allow that host write %s", c.Name(), u.Hostname())
	}
	if lookup.InClearText(c.URL) {
		p.here().warn(p, "%s is fetched by http: whoever is on the way can change the list, and so what is blocked; use https", c.Name())
	}
	return p.own(OwnFile{Fetch: c, Allow: allow}, c.Name())
}

// checkListURL refuses what can be no list.
func checkListURL(u *url.URL) error {
	switch {
	case u.Hostname() == "github.com" && strings.Contains(u.Path, "/blob/"):
		return errors.New("GitHub shows that file in a web page: write the URL of its button Raw, which begins with https://raw.githubusercontent.com/")
	case strings.Contains(u.Path, "/-/blob/"):
		return errors.New("GitLab shows that file in a web page: write /-/raw/ for /-/blob/")
	}
	if u.Port() != "" {
		if _, err := number(u.Port(), 1, 65535); err != nil {
			return fmt.Errorf("the port %w", err)
		}
	}
	return nil
}

func (p *parser) hasURLs() bool { return len(p.Fetches()) > 0 }

// completeURLs tells the lists by URL what other lines say: where they are kept, and who
// resolves their names.
func (p *parser) completeURLs() {
	for i := range p.Own {
		if c := &p.Own[i].Fetch; c.URL != "" {
			c.DB, c.Resolvers = p.DB, p.Resolvers
		}
	}
	if at, ok := p.given["db"]; ok && p.hasURLs() && p.DB == "" {
		at.warn(p, "db is off: lists by URL are fetched at each start, and do not protect before; add db DIRECTORY")
	}
}

// units are what a size may end in.
var units = map[string]float64{
	"": 1, "B": 1, "K": 1 << 10, "KB": 1e3, "KIB": 1 << 10, "M": 1 << 20, "MB": 1e6, "MIB": 1 << 20, "G": 1 << 30, "GB": 1e9, "GIB": 1 << 30,
}

// size reads a number of bytes from lowest to highest.
func size(text string, lowest, highest int64) (int64, error) {
	digits := strings.TrimRight(text, "BKMGibkmg")
	unit, known := units[strings.ToUpper(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || math.IsNaN(n) {
		return 0, fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	if n *= unit; n < float64(lowest) || n > float64(highest) {
		return 0, errors.New(strconv.Quote(text) + " is not a size from 1KiB to 4GiB")
	}
	return int64(n), nil
}
