package policy

import (
	"errors"
	"io/fs"
	"strings"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// log writes the lines about the operator's own lists.
var log = clog.NewWithPlugin(config.Plugin)

// corefileHosts is the name, as a list, of the hosts that the Corefile allows.
const corefileHosts = "Corefile"

// openOwn loads the operator's lists, or shares those that are loaded already.
func openOwn(b *config.Block) (files []*ownlist.File, err error) {
	if len(b.Hosts) > 0 {
		files = append(files, ownlist.Hosts(corefileHosts, b.Hosts))
	}
	for _, own := range b.Own {
		f, err := ownlist.Open(listOf(b, own), reportOwn)
		if err != nil {
			closeOwn(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func listOf(b *config.Block, own config.OwnFile) ownlist.Config {
	return ownlist.Config{Path: own.Path, Allow: own.Allow, IPv4: b.IPv4, IPv6: b.IPv6}
}

func closeOwn(files []*ownlist.File) {
	for _, f := range files {
		f.Close()
	}
}

// reportOwn turns what happens to a list into log lines.
func reportOwn(e ownlist.Event) {
	switch e := e.(type) {
	case ownlist.Loaded:
		reportLoaded(e)
	case ownlist.Failed:
		log.Errorf("List %s cannot be used: %v. The %s in force; the file is looked at again every few seconds",
			e.Path, reasonOf(e.Err), ownlist.Plural(e.InForce(), "name read before stays", "names read before stay"))
	}
}

// reportLoaded writes one line about a list that has been read, and another one if
// it is about very many names.
func reportLoaded(e ownlist.Loaded) {
	does := map[bool]string{false: "blocks", true: "allows"}[e.Allow]
	again := ""
	if e.Again {
		again = "can be used again and "
	}
	remarks := strings.Join(append([]string{""}, e.Remarks()...), "; ")
	switch nothing := e.Nothing(); {
	case e.Seems != "":
		log.Warningf("List %s %s%s nothing: it %s; %s", e.Path, again, does, e.Seems, e.Cure)
	case nothing != "":
		log.Warningf("List %s %s%s nothing: it %s%s", e.Path, again, does, nothing, remarks)
	case e.Bad.Count > 0 || e.Elsewhere.Count > 0:
		log.Warningf("List %s %sis in force with %s%s", e.Path, again, ownlist.Plural(e.InForce(), "name", "names"), remarks)
	default:
		log.Infof("List %s %sis in force with %s%s", e.Path, again, ownlist.Plural(e.InForce(), "name", "names"), remarks)
	}
	if wide := e.WideRemark(); wide != "" {
		log.Warningf("List %s: %s", e.Path, wide)
	}
}

// reasonOf returns an error without the operation and the path: the log line names
// the file.
func reasonOf(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
