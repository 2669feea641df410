package safebrowsing

import (
	"errors"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// ownFile is a list of the operator's own, as the Corefile names it.
type ownFile struct {
	path  string
	allow bool // names in it are never blocked; else names in it are blocked
}

// corefileHosts is what the hosts that the Corefile allows are called as a list.
const corefileHosts = "Corefile"

// openOwn loads the operator's lists, or shares those that are loaded already.
func (c *config) openOwn() (files []*ownlist.File, err error) {
	if len(c.hosts) > 0 {
		files = append(files, ownlist.Hosts(corefileHosts, c.hosts))
	}
	for _, own := range c.own {
		f, err := ownlist.Open(own.path, own.allow, reportOwn)
		if err != nil {
			return nil, errors.Join(err, closeOwn(files))
		}
		files = append(files, f)
	}
	return files, nil
}

func closeOwn(files []*ownlist.File) error {
	for _, f := range files {
		f.Close()
	}
	return nil
}

// reportOwn turns what happens to a list into log lines.
func reportOwn(e ownlist.Event) {
	switch e := e.(type) {
	case ownlist.Loaded:
		for _, line := range e.BadLines {
			log.Warningf("%s:%d is no entry of a list and is left out: %q", e.Path, line.Number, line.Text)
		}
		if more := e.Bad - len(e.BadLines); more > 0 {
			log.Warningf("%s: %d more lines are no entries and are left out", e.Path, more)
		}
		log.Infof("List %s is in force with %d names; %d entries that DNS cannot see are left out", e.Path, e.Entries, e.Skipped)
	case ownlist.Failed:
		log.Errorf("List %s stays as it was: %v", e.Path, e.Err)
	}
}
