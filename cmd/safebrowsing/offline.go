package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/listfetch"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Offline is the plugin of one server block without a name server: it decides as the plugin
// would. It reads the folder of lists that a CoreDNS keeps and changes nothing there. Only
// Confirm and the result of Client send requests. The caller must Close it.
type Offline struct {
	cfg      config.Config
	policy   *policy.Policy
	checker  *lookup.Checker   // nil: the service is off
	client   protocol.Client   // that checker asks by; nil: the service is off
	schedule *updater.Schedule // as CoreDNS saved it last; nil: the service is off
	ledger   *updater.Ledger   // likewise; nil: no budget, or db is off
	uncount  error             // why the ledger does not know the count; nil: it does
	problems []error
}

// rootOf returns the folder of the root plugin in a server block, or "".
func rootOf(block caddyfile.ServerBlock) string {
	if tokens := block.Tokens["root"]; len(tokens) == 2 {
		return tokens[1].Text
	}
	return ""
}

// openOffline returns the plugin with the default properties and the lists of a folder, which
// were fetched by protocol d. key may be "". An endpoint of "" is the protocol's own. If lists
// is nil, the default lists are used.
func openOffline(dir, endpoint string, d *protocol.Dialect, key string, lists []string) (*Offline, error) {
	cfg := config.Config{Block: config.Block{Zones: []string{"."}, Reply: answer.Reply{Service: d.Service}}, Online: true}
	cfg.Settings, cfg.Secret = config.Settings{DB: dir, Endpoint: endpoint, Protocol: d, APIKey: key, Lists: config.DefaultLists}, key
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return newOffline(cfg)
}

func newOffline(cfg config.Config) (*Offline, error) {
	o := &Offline{cfg: cfg}
	o.policy = policy.New(&o.cfg.Block)
	if err := o.policy.OpenStored(); err != nil {
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

// openLists loads the lists of the folder and makes the checker. It notes lists that it
// cannot read in problems.
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
	if o.cfg.Budget > 0 && o.cfg.DB != "" { // of a folder that does not exist yet
		if o.ledger, err = updater.NewLedger(nil); err != nil {
			return err
		}
	}
	if _, err := os.Stat(o.cfg.DB); o.cfg.DB != "" && err == nil {
		read, err := o.readFolder(database)
		if err != nil {
			o.problems = append(o.problems, err)
		}
		if read != nil { // if the file is damaged, a schedule that waits
			schedule = read
		}
	}
	o.client, o.schedule = client, schedule
	searcher := updater.Pace(client, schedule, o.cfg.SearchRules(nil), func(updater.Event) {})
	if o.checker, err = lookup.NewChecker(o.cfg.CheckerConfig(database, searcher)); err != nil {
		return err
	}
	o.policy.Use(policy.Source{Checker: o.checker, FetchHold: o.FetchHold, SearchHold: o.SearchHold})
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
	if o.cfg.Budget > 0 {
		o.ledger, o.uncount = updater.ReadLedger(store)
	}
	return updater.ReadSchedule(store)
}

// Close closes the own lists and cancels confirmations.
func (o *Offline) Close() {
	o.policy.Close()
	if o.checker != nil {
		o.checker.Close()
	}
}

// Problems returns an error for each list that is missing or damaged, and so finds nothing.
func (o *Offline) Problems() []error { return o.problems }

// Warnings returns the warnings of the parser, each with file and line: properties that work,
// but protect less than they seem to, or tell others more.
func (o *Offline) Warnings() []string { return o.cfg.Warnings }

// Zones returns the zones whose names are checked, with their final dots.
func (o *Offline) Zones() []string { return o.cfg.Zones }

// Folder returns the folder of the lists, or "" if they are kept in memory only.
func (o *Offline) Folder() string { return o.cfg.DB }

// Endpoint returns the URL of the server, of several endpoints all of them joined by a
// space, or "" if the service is off.
func (o *Offline) Endpoint() string {
	if !o.cfg.Online {
		return ""
	}
	return o.cfg.Address()
}

// Origin returns the origin of the lists in the folder.
func (o *Offline) Origin() updater.Origin { return o.cfg.Origin(o.Key()) }

// Protocol returns the protocol of the server.
func (o *Offline) Protocol() *protocol.Dialect { return o.cfg.Protocol }

// Settings returns the settings of the engine. Server blocks with equal ones share an engine.
func (o *Offline) Settings() config.Settings { return o.cfg.Settings }

// Key returns the API key or the access token, or "".
func (o *Offline) Key() string { return o.cfg.Secret }

// Service returns what Google calls the service of the protocol.
func (o *Offline) Service() string { return o.cfg.Service }

// Provider returns who provides what the server says, see engine.Engine.Provider.
func (o *Offline) Provider() protocol.Provider {
	if o.client == nil {
		return protocol.Provider{}
	}
	return o.cfg.ProviderOf(o.client, o.schedule)
}

// Reply returns how the plugin answers, in the words of who provides what the server says.
func (o *Offline) Reply() answer.Reply { return o.cfg.Reply.By(o.Provider()) }

// TokenFile returns the file with the access token that Key returns, or "" if Key returns
// an API key.
func (o *Offline) TokenFile() string {
	if !o.cfg.Token {
		return ""
	}
	return o.cfg.KeyFile
}

// renewedSince reports whether there is a token that was written after a time: a refusal at
// that time was for the one before.
func (o *Offline) renewedSince(t time.Time) bool {
	info, err := os.Stat(o.TokenFile())
	return err == nil && info.ModTime().After(t)
}

// MaxEntries returns the most entries of a list, or 0 for the default.
func (o *Offline) MaxEntries() int { return o.cfg.MaxEntries }

// Lists returns the names of the lists that CoreDNS keeps.
func (o *Offline) Lists() []string { return o.cfg.Stored() }

// Resolvers returns the name servers for the name of the endpoint, as "address:port". If
// there are none, the system's resolver is used.
func (o *Offline) Resolvers() []string { return strings.Fields(o.cfg.Resolvers) }

// FetchHold returns why and until when CoreDNS fetches no lists, by the schedule that it saved
// last. The service must not be off.
func (o *Offline) FetchHold() updater.Hold { return o.schedule.FetchHold(o.cfg.Stored()) }

// SearchHold returns why and until when CoreDNS confirms no names, by the schedule and the
// count of searches that it saved last.
func (o *Offline) SearchHold() (hold updater.Hold) {
	if o.schedule == nil {
		return updater.Hold{}
	}
	if o.ledger != nil {
		hold = o.ledger.Hold(o.cfg.Budget, time.Now())
	}
	if paused := o.schedule.SearchHold(); paused.Until.After(hold.Until) {
		return paused
	}
	return hold
}

// Budget returns the most searches a day, 0 for no limit, and the count of them that CoreDNS
// saved last; nil: there is none. The error says that the count cannot be read.
func (o *Offline) Budget() (perDay int, count *updater.Ledger, err error) {
	return o.cfg.Budget, o.ledger, o.uncount
}

// Blocks reports whether the plugin blocks names, and does not only say that it would.
func (o *Offline) Blocks() bool { return !o.cfg.Monitor }

// OwnList returns the Config of an own list. path is Decision.List of one of its decisions.
func (o *Offline) OwnList(path string) ownlist.Config { return o.policy.OwnList(path) }

// OwnLists returns the states of the own lists: first the hosts that the Corefile allows, then
// the files in the order of the Corefile.
func (o *Offline) OwnLists() []ownlist.State { return o.policy.OwnLists() }

// Fetches returns how the lists by URL are fetched, in the order of the Corefile.
func (o *Offline) Fetches() (all []listfetch.Config) {
	for _, f := range o.cfg.Own {
		if f.Fetch.URL != "" {
			all = append(all, f.Fetch)
		}
	}
	return all
}

// Check returns the decision about a host without a request. suspected says that for a query
// the server would confirm it; the verdict is then Unsure.
func (o *Offline) Check(h lookup.Host) (d lookup.Decision, suspected bool) {
	e := o.policy.Explain(h, h.String()+".")
	return e.Decision, e.Suspected
}

// WhyNoConfirm returns why the command line must not search by the protocol, or nil.
func (o *Offline) WhyNoConfirm() error {
	switch d := o.cfg.Protocol; {
	case d.Paid:
		return fmt.Errorf("only CoreDNS searches by protocol %s: each search costs money, and CoreDNS counts it towards the budget", d)
	case d.SearchRules.Published:
		return fmt.Errorf("only CoreDNS searches by protocol %s: the server's minimum wait is for all searches with a key", d)
	}
	return nil
}

// Confirm returns the decision about a host. It asks the server if the host is suspected and
// if the server's rules allow a request now. WhyNoConfirm must return nil.
func (o *Offline) Confirm(ctx context.Context, h lookup.Host) lookup.Decision {
	if !o.policy.InScope(h.String() + ".") {
		return lookup.Decision{}
	}
	d, candidates := o.policy.Check(h)
	if candidates != nil {
		d = o.checker.Confirm(candidates, nil).Wait(ctx)
	}
	if o.Needed(h) != "" {
		d = policy.Spare(d)
	}
	return d
}

// BlocksNeeded returns the needed names that an own list has, by its name in OwnLists.
func (o *Offline) BlocksNeeded(list string) policy.NeededNames { return o.policy.BlocksNeeded(list) }

// Needed returns what a host is needed for, so that neither Safe Browsing nor a list by URL
// blocks it, or "".
func (o *Offline) Needed(h lookup.Host) string { return o.policy.Needed(h) }

// Client returns a client of the server, as the plugin would use it. It sends the same user
// agent. A nil transport means the network. The caller must Close it.
func (o *Offline) Client(transport http.RoundTripper) (protocol.Client, error) {
	return o.cfg.Client(o.Key(), new(lookup.Database), transport)
}

// ClientAt is Client for one of the endpoints.
func (o *Offline) ClientAt(endpoint string, transport http.RoundTripper) (protocol.Client, error) {
	return o.cfg.At(endpoint).Client(o.Key(), new(lookup.Database), transport)
}

// Checks reports whether the plugin checks the host: it is in one of its zones and in none of
// its exceptions.
func (o *Offline) Checks(h lookup.Host) bool { return o.policy.InScope(h.String() + ".") }
