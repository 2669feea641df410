package safebrowsing

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pkgparse "github.com/coredns/coredns/plugin/pkg/parse"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func (p *parser) apiKey(args []string) error {
	if p.given["api_key_file"] {
		return errors.New("there is an api_key_file already: keep one of the two")
	}
	if p.key = args[0]; p.key == "" {
		return errors.New("the key is empty")
	}
	p.secret = p.key
	return nil
}

func (p *parser) apiKeyFile(args []string) (err error) {
	if p.given["api_key"] {
		return errors.New("there is an api_key already: keep one of the two")
	}
	p.keyFile = p.path(args[0])
	p.secret, err = readKey(p.keyFile)
	return err
}

func (p *parser) endpointURL(args []string) error {
	p.endpoint = strings.TrimSuffix(args[0], "/")
	_, err := protocol.NewV5(p.clientConfig(p.secret, nil))
	return err
}

func (p *parser) protocolOf(args []string) (err error) {
	p.settings.protocol, err = protocol.ParseVersion(args[0])
	return err
}

func (p *parser) modeOf(args []string) error {
	modes := map[string]lookup.Mode{"local": lookup.Local, "realtime": lookup.RealTime, "nostorage": lookup.NoStorage}
	mode, ok := modes[args[0]]
	if !ok {
		return errors.New(strconv.Quote(args[0]) + " is none of local, realtime, nostorage")
	}
	p.mode = mode
	return nil
}

func (p *parser) listsNamed(args []string) error {
	for i, name := range args {
		if _, err := updater.Width(name); err != nil {
			return err
		}
		if name == globalCache {
			return errors.New(globalCache + " lists hosts that are likely safe, it cannot be used to block; mode realtime uses it")
		}
		if slices.Contains(args[:i], name) {
			return errors.New(name + " is named twice")
		}
	}
	p.lists = strings.Join(args, " ")
	return nil
}

// globalCache is Google's list of hosts that are likely safe.
const globalCache = "gc-32b"

func (p *parser) maxEntriesOf(args []string) (err error) {
	p.maxEntries, err = number(args[0], minMaxEntries, updater.DefaultMaxEntries)
	return err
}

func (p *parser) capacity(args []string) (err error) {
	p.settings.cache, err = number(args[0], 1, 1<<30)
	return err
}

func number(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, errors.New(strconv.Quote(text) + " is not a number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return n, nil
}

func (p *parser) folder(args []string) error {
	if args[0] == "off" {
		p.db = ""
		return nil
	}
	p.db = filepath.Clean(p.path(args[0]))
	return nil
}

func (p *parser) resolver(args []string) error {
	var all []string
	for _, arg := range args {
		address, err := pkgparse.HostPort(arg, "53")
		if err != nil {
			return err
		}
		all = append(all, address)
	}
	p.resolvers = strings.Join(all, " ")
	return nil
}
