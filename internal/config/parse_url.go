package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

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
	if InClearText(c.URL) {
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
	return checkPort(u)
}

func (p *parser) hasURLs() bool {
	return slices.ContainsFunc(p.Own, func(f OwnFile) bool { return f.Fetch.URL != "" })
}

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
