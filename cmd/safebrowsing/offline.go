package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Offline is the plugin of one server block without a name server: it decides what the
// plugin would. It reads the lists that a CoreDNS keeps, changes nothing, and only asks
// the server when it is told to. Close it when it is no longer needed.
type Offline struct {
	cfg      config.Config
	policy   *policy.Policy
	checker  *lookup.Checker   // nil: Safe Browsing is off
	schedule *updater.Schedule // as it was saved last; nil: Safe Browsing is off
	problems []error
}

// rootOf returns the folder that the root plugin of a server block names.
func rootOf(block caddyfile.ServerBlock) string {
	if tokens := block.Tokens["root"]; len(tokens) == 2 {
		return tokens[1].Text
	}
	return ""
}

// openOffline returns the plugin as it would be with the default properties and
// the lists in a folder, which came by the given protocol. Key and
// endpoint may be ""; lists nil are the default ones.
func openOffline(dir, endpoint string, d *protocol.Dialect, key string, lists []string) (*Offline, error) {
	cfg := config.Config{Block: config.Block{Zones: []string{"."}}, Online: true}
	cfg.Settings, cfg.Secret = config.Settings{DB: dir, Endpoint: endpoint, Protocol: d, APIKey: key, Lists: config.DefaultLists}, key
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return newOffline(cfg)
}

func newOffline(cfg config.Config) (*Offline, error) {
	o := &Offline{cfg: cfg}
	o.policy = policy.New(&o.cfg.Block)
	if err := o.policy.Open(); err != nil {
		return nil, err
	}
	if !cfg.Online {
		return o, nil
	}
	if err := o.openLists(); err != nil {
		o.policy.Close()
		return nil, err
	}
	return o, nil
}

// openLists has the lists of the folder decide, as far as they can be read.
func (o *Offline) openLists() error {
	database := new(lookup.Database)
	client, err := o.cfg.Client(o.cfg.Secret, database, nil)
	if err != nil {
		return err
	}
	schedule, err := updater.NewSchedule(nil)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.cfg.DB); o.cfg.DB != "" && err == nil {
		read, err := o.readFolder(database)
		if err != nil {
			o.problems = append(o.problems, err)
		}
		if read != nil { // a cautious one, if it was damaged
			schedule = read
		}
	}
	o.schedule = schedule
	searcher := updater.Pace(client, schedule, o.cfg.SearchRules(nil), func(updater.Event) {})
	if o.checker, err = lookup.NewChecker(o.cfg.CheckerConfig(database, searcher)); err != nil {
		return err
	}
	o.policy.Use(o.checker, schedule, o.Lists())
	return nil
}

// readFolder publishes the lists of the folder and returns its schedule.
func (o *Offline) readFolder(database *lookup.Database) (*updater.Schedule, error) {
	store, err := updater.OpenStore(o.cfg.DB, o.cfg.Origin(o.Key()))
	if err != nil {
		return nil, err
	}
	var lists []lookup.List
	for _, name := range o.cfg.Stored() {
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
	o.policy.Close()
	if o.checker != nil {
		o.checker.Close()
	}
}

// Problems are lists that are missing or damaged: names in them are not found.
func (o *Offline) Problems() []error { return o.problems }

// Warnings returns what of the Corefile works, but protects less than it looks, or
// tells others more, each with its file and line.
func (o *Offline) Warnings() []string { return o.cfg.Warnings }

// InClearText reports whether requests can be read on a public network.
func (o *Offline) InClearText() bool { return config.InClearText(o.Endpoint()) }

// Zones returns the zones whose names are checked, with their final dots.
func (o *Offline) Zones() []string { return o.cfg.Zones }

// Folder returns where lists are kept, or "" if in memory only.
func (o *Offline) Folder() string { return o.cfg.DB }

// Endpoint returns the address of the server, or "" if there is none to ask.
func (o *Offline) Endpoint() string {
	if !o.cfg.Online {
		return ""
	}
	return o.cfg.Address()
}

// Origin says where lists in the folder come from.
func (o *Offline) Origin() updater.Origin { return o.cfg.Origin(o.Key()) }

// Protocol returns the protocol that the server is asked by.
func (o *Offline) Protocol() *protocol.Dialect { return o.cfg.Protocol }

// Settings returns what makes an engine another one.
func (o *Offline) Settings() config.Settings { return o.cfg.Settings }

// Key returns the API key, or "".
func (o *Offline) Key() string { return o.cfg.Secret }

// MaxEntries returns the most entries that a list may have, or 0 for no limit.
func (o *Offline) MaxEntries() int { return o.cfg.MaxEntries }

// Lists returns the names of the lists that are kept.
func (o *Offline) Lists() []string { return o.cfg.Stored() }

// Resolvers returns the name servers that resolve the endpoint's name, as
// "address:port"; none: the system's.
func (o *Offline) Resolvers() []string { return strings.Fields(o.cfg.Resolvers) }

// FetchHold and SearchHold say why CoreDNS does not ask the server now for lists,
// and to confirm, by the schedule that it saved last.
func (o *Offline) FetchHold() updater.Hold { return o.schedule.FetchHold(o.cfg.Stored()) }

// SearchHold is described at FetchHold.
func (o *Offline) SearchHold() updater.Hold {
	if o.schedule == nil {
		return updater.Hold{}
	}
	return o.schedule.SearchHold()
}

// OwnList returns how a file of the operator's lists is read, by its path as
// decisions name it.
func (o *Offline) OwnList(path string) ownlist.Config { return o.policy.OwnList(path) }

// OwnLists returns how the operator's own lists stand, in the order of the Corefile
// after the hosts that it allows.
func (o *Offline) OwnLists() []ownlist.State { return o.policy.OwnLists() }

// Check returns the decision about a host by what is known here, and whether a
// query for it would have it confirmed by the server: then the verdict is
// Unsure.
func (o *Offline) Check(h lookup.Host) (d lookup.Decision, suspected bool) {
	e := o.policy.Explain(h, h.String()+".")
	return e.Decision, e.Suspected
}

// errOnlyServer says that the command line must not search.
var errOnlyServer = errors.New("only CoreDNS searches by this protocol: the server's minimum wait is for all searches with a key")

// Confirm returns the decision about a host, for which the server is asked if
// need be and if its rules allow it now.
func (o *Offline) Confirm(ctx context.Context, h lookup.Host) lookup.Decision {
	if !o.policy.InScope(h.String() + ".") {
		return lookup.Decision{}
	}
	d, candidates := o.policy.Check(h)
	switch {
	case candidates != nil && o.cfg.Protocol.SearchRules.Published:
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
	return o.cfg.Client(o.Key(), new(lookup.Database), transport)
}

// Checks reports whether names of the host are for this server block to check:
// they are in its zones and in none of its exceptions.
func (o *Offline) Checks(h lookup.Host) bool { return o.policy.InScope(h.String() + ".") }
