package safebrowsing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Offline is the plugin of one server block without a name server: the command
// line asks it what the plugin would decide. It reads the lists that a CoreDNS
// keeps, changes nothing, and only asks the server when it is told to. Close it
// when it is no longer needed.
type Offline struct {
	plugin   *SafeBrowsing
	settings config.Settings
	checker  *lookup.Checker
	schedule *updater.Schedule // as it was saved last; nil: Safe Browsing is off
	problems []error
}

// ServerBlock is a server block of a Corefile.
type ServerBlock struct {
	Keys    []string                     // its zones, as they are written
	Tokens  map[string][]caddyfile.Token // of each directive, with its name
	Offline *Offline                     // nil: the block does not have the plugin
}

// ReadCorefile returns all server blocks of a Corefile, of which at least one has
// the plugin. Close each Offline.
func ReadCorefile(path string) (all []ServerBlock, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blocks, err := caddyfile.Parse(path, f, nil)
	if err != nil {
		return nil, err
	}
	found := false
	defer func() {
		if err != nil {
			closeBlocks(all)
		}
	}()
	for _, block := range blocks {
		b := ServerBlock{Keys: block.Keys, Tokens: block.Tokens}
		if tokens, ok := block.Tokens[config.Plugin]; ok {
			c := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens(path, tokens), ServerBlockKeys: block.Keys}
			cfg, err := config.Parse(c, rootOf(block))
			if err != nil {
				return all, err
			}
			if b.Offline, err = newOffline(cfg); err != nil {
				return all, err
			}
			found = true
		}
		all = append(all, b)
	}
	if !found {
		return nil, fmt.Errorf("%s: no server block has %s", path, config.Plugin)
	}
	return all, nil
}

func closeBlocks(all []ServerBlock) {
	for _, b := range all {
		if b.Offline != nil {
			b.Offline.Close()
		}
	}
}

// rootOf returns the folder that the root plugin of a server block names.
func rootOf(block caddyfile.ServerBlock) string {
	if tokens := block.Tokens["root"]; len(tokens) == 2 {
		return tokens[1].Text
	}
	return ""
}

// OpenFolder returns the plugin as it would be with the default properties and
// the lists in a folder, which came by the given version of the protocol. Key and
// endpoint may be ""; lists nil are the default ones.
func OpenFolder(dir, endpoint string, v protocol.Version, key string, lists []string) (*Offline, error) {
	cfg := config.Config{Block: config.Block{Zones: []string{"."}}, Online: true}
	cfg.Settings, cfg.Secret = config.Settings{DB: dir, Endpoint: endpoint, Protocol: v, APIKey: key, Lists: config.DefaultLists}, key
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return newOffline(cfg)
}

func newOffline(cfg config.Config) (o *Offline, err error) {
	o = &Offline{plugin: &SafeBrowsing{cfg: cfg}, settings: cfg.Settings}
	files, err := openOwn(&cfg.Block)
	if err != nil {
		return nil, err
	}
	o.plugin.files.Store(&files)
	defer func() {
		if err != nil {
			closeOwn(files)
		}
	}()
	if !cfg.Online {
		return o, nil
	}
	database := new(lookup.Database)
	client, err := cfg.Client(cfg.Secret, database, nil)
	if err != nil {
		return nil, err
	}
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.DB); cfg.DB != "" && err == nil {
		read, err := o.readFolder(database)
		if err != nil {
			o.problems = append(o.problems, err)
		}
		if read != nil { // a cautious one, if it was damaged
			schedule = read
		}
	}
	o.schedule = schedule
	searcher := updater.Pace(client, schedule, cfg.SearchRules(nil), func(updater.Event) {})
	o.checker, err = lookup.NewChecker(cfg.CheckerConfig(database, searcher))
	if err == nil {
		o.plugin.engine.Store(&engine.Engine{Checker: o.checker, Schedule: schedule})
	}
	return o, err
}

// readFolder publishes the lists of the folder and returns its schedule.
func (o *Offline) readFolder(database *lookup.Database) (*updater.Schedule, error) {
	store, err := updater.OpenStore(o.settings.DB, o.settings.Origin(o.Key()))
	if err != nil {
		return nil, err
	}
	var lists []lookup.List
	for _, name := range o.settings.Stored() {
		l, err := store.ReadList(name)
		switch {
		case err == nil:
			lists = append(lists, lookup.List{Name: name, Version: l.Version, Set: l.Set, LikelySafe: name == protocol.GlobalCache})
		case errors.Is(err, fs.ErrNotExist):
			o.problems = append(o.problems, fmt.Errorf("list %s has not been fetched yet", name))
		default:
			o.problems = append(o.problems, err)
		}
	}
	database.Publish(lists)
	return updater.ReadSchedule(store)
}

// Close ends what Confirm has begun.
func (o *Offline) Close() {
	closeOwn(*o.plugin.files.Load())
	if o.checker != nil {
		o.checker.Close()
	}
}

// Problems are lists that are missing or damaged: names in them are not found.
func (o *Offline) Problems() []error { return o.problems }

// Warnings returns what of the Corefile works, but protects less than it looks, or
// tells others more, each with its file and line.
func (o *Offline) Warnings() []string { return o.plugin.cfg.Warnings }

// InClearText reports whether requests can be read on a public network.
func (o *Offline) InClearText() bool { return config.InClearText(o.Endpoint()) }

// Zones returns the zones whose names are checked, with their final dots.
func (o *Offline) Zones() []string { return o.plugin.cfg.Zones }

// Folder returns where lists are kept, or "" if in memory only.
func (o *Offline) Folder() string { return o.settings.DB }

// Endpoint returns the address of the server, or "" if there is none to ask.
func (o *Offline) Endpoint() string {
	if !o.plugin.cfg.Online {
		return ""
	}
	return o.settings.Address()
}

// Origin says where lists in the folder come from.
func (o *Offline) Origin() updater.Origin { return o.settings.Origin(o.Key()) }

// Protocol returns the version of the protocol that the server is asked by.
func (o *Offline) Protocol() protocol.Version { return o.settings.Protocol }

// Settings returns what makes an engine another one.
func (o *Offline) Settings() config.Settings { return o.settings }

// Key returns the API key, or "".
func (o *Offline) Key() string { return o.plugin.cfg.Secret }

// MaxEntries returns the most entries that a list may have, or 0 for no limit.
func (o *Offline) MaxEntries() int { return o.settings.MaxEntries }

// Lists returns the names of the lists that are kept.
func (o *Offline) Lists() []string { return o.settings.Stored() }

// Resolvers returns the name servers that resolve the endpoint's name, as
// "address:port"; none: the system's.
func (o *Offline) Resolvers() []string { return strings.Fields(o.settings.Resolvers) }

// FetchHold and SearchHold say why CoreDNS does not ask the server now for lists,
// and to confirm, by the schedule that it saved last.
func (o *Offline) FetchHold() updater.Hold { return o.schedule.FetchHold(o.settings.Stored()) }

// SearchHold is described at FetchHold.
func (o *Offline) SearchHold() updater.Hold {
	if o.schedule == nil {
		return updater.Hold{}
	}
	return o.schedule.SearchHold()
}

// OwnList returns how a file of the operator's lists is read, by its path as
// decisions name it.
func (o *Offline) OwnList(path string) ownlist.Config {
	own := config.OwnFile{Path: path, Allow: slices.Contains(o.plugin.cfg.Own, config.OwnFile{Path: path, Allow: true})}
	return ownListOf(&o.plugin.cfg.Block, own)
}

// OwnLists returns how the operator's own lists stand, in the order of the Corefile
// after the hosts that it allows.
func (o *Offline) OwnLists() (all []ownlist.State) {
	for _, f := range *o.plugin.files.Load() {
		all = append(all, f.State())
	}
	return all
}

// Check returns the decision about a host by what is known here, and whether a
// query for it would have it confirmed by the server: then the verdict is
// Unsure.
func (o *Offline) Check(h lookup.Host) (d lookup.Decision, suspected bool) {
	e := o.plugin.explainHost(h, h.String()+".")
	return e.Decision, e.suspected
}

// errOnlyServer says that the command line must not search.
var errOnlyServer = errors.New("by protocol v4 only CoreDNS searches: the server's minimum wait is for all searches with a key")

// Confirm returns the decision about a host, for which the server is asked if
// need be and if its rules allow it now.
func (o *Offline) Confirm(ctx context.Context, h lookup.Host) lookup.Decision {
	if !o.plugin.mine(h.String() + ".") {
		return lookup.Decision{}
	}
	d, candidates := o.plugin.check(h)
	switch {
	case candidates != nil && o.settings.Protocol == protocol.Version4:
		return lookup.Decision{Verdict: lookup.Unsure, By: lookup.ByBackoff, List: d.List, Err: errOnlyServer}
	case candidates != nil:
		return o.checker.Confirm(candidates, nil).Wait(ctx)
	}
	return d
}

// Client returns a client of the server, as the plugin would use it, which names
// itself in the same way. A nil transport is the network. Close it when it is no
// longer needed.
func (o *Offline) Client(transport http.RoundTripper) (protocol.Client, error) {
	return o.settings.Client(o.Key(), new(lookup.Database), transport)
}

// Checks reports whether names of the host are for this server block to check:
// they are in its zones and in none of its exceptions.
func (o *Offline) Checks(h lookup.Host) bool { return o.plugin.mine(h.String() + ".") }
