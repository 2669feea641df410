package safebrowsing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

func (p *parser) blockFiles(args []string) error {
	for _, name := range args {
		err := p.ownFile(name, false)
		if errors.Is(err, errNoFile) && !p.namesFile(name) {
			return fmt.Errorf("%w; block takes files: write the name into one", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoFile = errors.New("there is no file")

// ownFile notes a file, which must be readable now. It is loaded at the start.
func (p *parser) ownFile(name string, allow bool) error {
	if strings.Contains(name, "://") {
		return fmt.Errorf("lists by URL are not supported: have a timer run \"curl -fsSo FILE.new %s && mv FILE.new FILE\", and name FILE here", name)
	}
	path := p.path(name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s", errNoFile, path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name the files in it", path)
	case !info.Mode().IsRegular(): // to open a named pipe would block
		return fmt.Errorf("%s is not a regular file: a list is read again when it changes, and must be one", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	p.own = append(p.own, ownFile{path: path, allow: allow})
	return f.Close()
}

// allowed reads files and hosts, a host with until when it is allowed.
func (p *parser) allowed(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		timed := len(args) > 0 && strings.EqualFold(args[0], "until")
		switch {
		case strings.EqualFold(arg, "until"):
			return errors.New("until needs a host before it, such as good.example.org until 2027-01-31")
		case timed && args[0] != "until":
			return fmt.Errorf("%q: did you mean until?", args[0])
		case p.namesFile(arg) && arg != ".":
			if timed {
				return fmt.Errorf("until is for hosts: in the file %s end a line in \"# until 2027-01-31\"", arg)
			}
			if err := p.allowFile(arg); err != nil {
				return err
			}
			continue
		}
		entry, err := p.allowedHost(arg)
		if err != nil {
			return err
		}
		if timed {
			if len(args) == 1 {
				return errors.New("until needs a date after it, such as 2027-01-31")
			}
			if entry.Until, err = p.until(arg, args[1]); err != nil {
				return err
			}
			args = args[2:]
		}
		p.hosts = append(p.hosts, entry)
	}
	return nil
}

// allowFile notes a file of allowed names.
func (p *parser) allowFile(arg string) error {
	err := p.ownFile(arg, true)
	if err != nil && !strings.ContainsRune(arg, '/') {
		return fmt.Errorf("%w (to allow a host of that name write %s.)", err, arg)
	}
	return err
}

// allowedHost reads a host, "*." and a domain for all names below it, or "." and a
// domain for both, as lines of a file mean them.
func (p *parser) allowedHost(arg string) (e ownlist.HostEntry, err error) {
	if arg == "." || arg == "*" || arg == "*." {
		return e, fmt.Errorf("%q would allow every name: remove safebrowsing instead", arg)
	}
	name, below := strings.CutPrefix(arg, "*.")
	if e.Below = below; !below {
		name = strings.TrimPrefix(arg, ".")
	}
	if e.Host, err = p.host(name); err != nil {
		return e, err
	}
	if !strings.Contains(arg, ".") {
		p.here().warn(p, "allow %s is for the host of that name: there is no file %s", arg, p.path(arg))
	} else if info, err := os.Stat(p.path(arg)); err == nil && !info.IsDir() {
		p.here().warn(p, "allow %s is for the host of that name; there is also a file: write ./%s to use it", arg, arg)
	}
	return e, nil
}

// until reads when a host stops being allowed. An end that has passed is no
// reason to refuse: an old exception must not keep DNS from starting.
func (p *parser) until(host, text string) (time.Time, error) {
	end, err := ownlist.ParseUntil(text, time.Local)
	if err != nil {
		return end, err
	}
	if !time.Now().Before(end) {
		p.here().warn(p, "allow %s until %s has ended: %s is not allowed any more; remove it, or write a later date", host, text, host)
		return end, nil
	}
	p.notes = append(p.notes, fmt.Sprintf("%s: %s is allowed until %s", p.here(), host, end.Format("2006-01-02 15:04:05 MST")))
	return end, nil
}
