package safebrowsing

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (p *parser) blockFiles(args []string) error {
	for _, name := range args {
		if err := p.ownFile(name, false); err != nil {
			return err
		}
	}
	return nil
}

// ownFile notes a file, which must be readable now. It is loaded at the start.
func (p *parser) ownFile(name string, allow bool) error {
	f, err := os.Open(p.path(name))
	if err != nil {
		return err
	}
	p.own = append(p.own, ownFile{path: p.path(name), allow: allow})
	return f.Close()
}

// allowed reads files and hosts, the latter with "until" and a date if that is so.
// An argument with a slash, or one that names a file that is there, is a file.
func (p *parser) allowed(args []string) error {
	for ; len(args) > 0; args = args[1:] {
		if _, err := os.Stat(p.path(args[0])); err == nil || strings.ContainsRune(args[0], filepath.Separator) {
			if err := p.ownFile(args[0], true); err != nil {
				return err
			}
			continue
		}
		host, ok := lookup.ParseHost(args[0])
		if !ok {
			return errors.New(strconv.Quote(args[0]) + " is neither a file nor a host")
		}
		entry := ownlist.HostEntry{Host: host}
		if len(args) > 1 && args[1] == "until" {
			if len(args) == 2 {
				return errors.New("until takes a date such as 2027-01-31")
			}
			day, err := time.Parse(time.DateOnly, args[2])
			if err != nil {
				return errors.New(strconv.Quote(args[2]) + " is not a date such as 2027-01-31")
			}
			entry.Until, args = day.AddDate(0, 0, 1), args[2:]
		}
		p.hosts = append(p.hosts, entry)
	}
	return nil
}
