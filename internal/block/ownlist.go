package block

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// corefileHosts is the name, as a list, of the hosts that the Corefile allows.
const corefileHosts = "Corefile"

// own is the operator's lists that are open.
type own struct {
	files   []*ownlist.File
	local   []*ownlist.File          // of files those that the operator writes
	fetched []*ownlist.URLList       // of those that are fetched
	configs map[which]ownlist.Config // how files are read
}

// which tells files apart, by the name in decisions.
type which struct {
	name  string
	allow bool
}

// OwnLists returns the states of the operator's own lists: the hosts that the Corefile
// allows, then the files in its order.
func (b *Block) OwnLists() (all []ownlist.State) {
	if lists := b.own.Load(); lists != nil {
		for _, f := range lists.files {
			all = append(all, f.State())
		}
	}
	return all
}

// allowed reports whether the Corefile allows a host, or a list of allow does.
func (o *own) allowed(h lookup.Host) bool {
	return slices.ContainsFunc(o.files, func(f *ownlist.File) bool {
		m, found := f.Match(h, time.Now())
		return found && m.Allow && (m.File == corefileHosts || o.configs[which{m.File, true}].Allow)
	})
}

// unfetched returns why lists by URL are not brought up to date, by their names.
func (b *Block) unfetched() map[string]string {
	all := make(map[string]string)
	if lists := b.own.Load(); lists != nil {
		for _, l := range lists.fetched {
			s := l.State()
			all[s.Name] = s.Error // "" after a success
		}
	}
	return all
}

// ownList returns how a list is read, by its name in decisions: of two of a name, the one that allows if allow is
// set, else the other one. If there is none, its path is "".
func (b *Block) ownList(name string, allow bool) ownlist.Config {
	lists := b.own.Load()
	if lists == nil {
		return ownlist.Config{}
	}
	if c, ok := lists.configs[which{name, allow}]; ok {
		return c
	}
	return lists.configs[which{name, !allow}]
}

// openOwn loads the operator's lists, or shares those that are loaded already. It keeps
// lists by URL fresh if fetch is set; else it loads what a CoreDNS has fetched.
func openOwn(cfg *config.Block, fetch bool, report func(ownlist.Event)) (*own, error) {
	all := &own{configs: make(map[which]ownlist.Config)}
	if len(cfg.Hosts) > 0 {
		all.files = append(all.files, ownlist.Hosts(corefileHosts, cfg.Hosts))
		all.local = append(all.local, all.files[0])
	}
	for _, list := range cfg.Own {
		c := listOf(cfg, list)
		if list.Fetch.URL != "" && fetch {
			l := ownlist.OpenURL(list.Fetch, c, reportFetched)
			all.fetched = append(all.fetched, l)
			c.Path = l.Path()
		}
		f, err := ownlist.Open(c, report)
		if err != nil {
			all.close()
			return nil, err
		}
		all.files = append(all.files, f)
		if !c.Fetched {
			all.local = append(all.local, f)
		}
		all.configs[which{list.Name(), list.Allow}] = c
	}
	return all, nil
}

// listOf returns how a list is read. Its path is the file in the db.
func listOf(cfg *config.Block, list config.OwnFile) ownlist.Config {
	c := ownlist.Config{Path: list.Path, Allow: list.Allow, IPv4: cfg.IPv4, IPv6: cfg.IPv6}
	if list.Fetch.URL != "" {
		c.Path, c.Name, c.Fetched, c.Wide = list.Fetch.Path(), list.Name(), true, list.Fetch.Wide
	}
	return c
}

func (o *own) close() {
	for _, f := range o.files { // first: without db a list by URL ends with its file
		f.Close()
	}
	for _, l := range o.fetched {
		l.Close()
	}
}

// reportOwn writes one line about what happens to a list, and another one if that has been read
// and is about very many names.
func reportOwn(e ownlist.Event) {
	if e.Err != nil {
		log.Errorf("List %s cannot be used: %v. The %s in force; the file is looked at again every few seconds",
			e.Path, reasonOf(e.Err), say.Count(e.InForce(), "name read before stays", "names read before stay"))
		return
	}
	does := map[bool]string{false: "blocks", true: "allows"}[e.Allow]
	again := ""
	if e.Again {
		again = "can be used again and "
	}
	remarks := strings.Join(append([]string{""}, e.Remarks()...), "; ")
	switch nothing := e.Nothing(); {
	case e.Seems != "":
		log.Warningf("List %s %s%s nothing: it %s; %s", e.Path, again, does, e.Seems, e.Cure)
	case nothing != "" && e.Idle():
		log.Infof("List %s %s%s nothing: it %s", e.Path, again, does, nothing)
	case nothing != "":
		log.Warningf("List %s %s%s nothing: it %s%s", e.Path, again, does, nothing, remarks)
	case e.Bad.Count > 0 || e.Elsewhere.Count > 0:
		log.Warningf("List %s %sis in force with %s%s", e.Path, again, say.Count(e.InForce(), "name", "names"), remarks)
	default:
		log.Infof("List %s %sis in force with %s%s", e.Path, again, say.Count(e.InForce(), "name", "names"), remarks)
	}
	if wide := e.Wide.String(); wide != "" {
		log.Warningf("List %s: %s", e.Path, wide)
	}
	if left := e.LeftOutRemark(); left != "" {
		log.Warningf("List %s: %s", e.Path, left)
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

// reportFetched turns what happens to a list by URL into log lines.
func reportFetched(e ownlist.URLEvent) {
	switch e := e.(type) {
	case ownlist.URLFailed:
		log.Warningf("List %s cannot be updated: %s. %s; next attempt at %s. %s", e.Name, e.Error, inForce(e.URLState), say.Time(e.Next), fetchAdvice(e))
	case ownlist.URLWaiting:
		log.Warningf("List %s has waited for a minute to be fetched: the server fetches %s first. %s", e.Name, strings.Join(e.Others, ", "), inForce(e.URLState))
	case ownlist.URLRecovered:
		log.Infof("List %s is updated again; next fetch at %s", e.Name, say.Time(e.Next))
	}
}

// inForce says what a list by URL does while it cannot be updated.
func inForce(s ownlist.URLState) string {
	if s.Changed.IsZero() {
		return "It was never fetched and has no effect"
	}
	return "The content of " + say.Time(cmp.Or(s.Checked, s.Changed)) + " stays in force"
}

// fetchAdvice says what the operator can do about a failure.
func fetchAdvice(e ownlist.URLFailed) string {
	switch {
	case e.Disk:
		return "Make room there, or name with db a directory that CoreDNS may write"
	case e.TooLong:
		return "Write a greater max_bytes behind the URL, or name a smaller list"
	case e.Doubt == nil:
		return "Check the URL and the network"
	case e.Doubt.From.IsZero():
		return "Open the URL in a browser, and correct it in the Corefile if it does not lead to a list"
	}
	return "It is believed if it comes again after " + say.Time(e.Doubt.From)
}
