package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const updateHelp = `Sends one request for the lists that the server's rules allow now. If none is due,
it sends nothing and says when the next one is due. It refuses a folder that a
running CoreDNS uses: CoreDNS updates the lists there by itself.

With -corefile, folder, server, lists and key come from the Corefile. Without it
the key comes from $SAFEBROWSING_API_KEY; a server of your own may need none. A
token_file works with -corefile only.

   safebrowsing update -corefile /etc/coredns/Corefile
   SAFEBROWSING_API_KEY=... safebrowsing update -db /var/lib/coredns
   safebrowsing update -db ./lists -endpoint http://127.0.0.1:8099 -now

The server's rules ask each program to wait up to a minute, at random, before its
first request. -now skips this delay and nothing else. Use it at a terminal, not in
a timer.

The JSON of a list is {"name","outcome","entries","not_before","error"}; outcome
is updated, unchanged, rejected (it failed its checks, the old content stays),
refused (the server does not have it) or waiting. The exit status is 0 also if
nothing is due. It is 1 if a list was rejected, was refused or could not be saved,
or if nothing is due because the last update failed. It is 2 if the request failed
or could not be sent.`

func update() *cli.Command {
	return &cli.Command{
		Name:        "update",
		Usage:       "fetch the lists that are due into a folder, once",
		Description: updateHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "fetch the lists for the CoreDNS of this `FILE`"},
			&cli.StringFlag{Name: "db", Usage: "the `FOLDER` for the lists (default: $STATE_DIRECTORY, else coredns-safebrowsing in your cache folder)"},
			&cli.StringFlag{Name: "endpoint", Usage: "the `URL` of the server, or several in quotes (default: Google's)"},
			&cli.StringFlag{Name: "protocol", Usage: "the `PROTOCOL` of the server: " + dialectNames(), Value: protocol.DialectV5.Name},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists, separated by commas (default: the lists in the folder, or else the plugin's default)"},
			&cli.BoolFlag{Name: "now", Usage: "skip the random delay of up to a minute"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := alone(c, nil); err != nil {
				return err
			}
			u := &fetching{console: newConsole(c), outcomes: make(map[string]outcome)}
			from := u.fromFlags
			if c.IsSet("corefile") {
				from = u.fromCorefile
			}
			if _, err := u.open(c, from); err != nil {
				return err
			}
			return u.run(ctx)
		},
	}
}

// fetching is one update of a folder.
type fetching struct {
	*console
	dir      string
	updater  *updater.Updater
	schedule *updater.Schedule

	names    []string           // of the lists, in the order of the output
	outcomes map[string]outcome // by name
	err      error              // of the request
	unsaved  bool               // a list or the schedule could not be saved
}

// outcome is the result for one list, in JSON.
type outcome struct {
	Name      string `json:"name"`
	Outcome   string `json:"outcome"`
	Entries   int    `json:"entries"`
	NotBefore string `json:"not_before"`
	Error     text   `json:"error"`
}

// open makes the updater for what a command line means, and returns the configuration.
func (u *fetching) open(c *cli.Command, from func(*cli.Command) (config.Config, error)) (cfg config.Config, err error) {
	if cfg, err = from(c); err != nil {
		return cfg, err
	}
	b := block.New(cfg)
	if cfg.Secret == "" && b.Settings.Google() {
		return cfg, errors.New("no API key: set $" + config.KeyVariable + ", or -endpoint for a server of your own")
	}
	u.names = b.Settings.Stored()
	return cfg, u.prepare(b, c.Bool("now"))
}

// prepare makes the updater. It creates the folder if that does not exist.
func (u *fetching) prepare(b *block.Block, now bool) error {
	for i, name := range u.names { // first: a wrong name must not create a folder
		if _, err := updater.Width(name); err != nil {
			return err
		}
		if slices.Contains(u.names[:i], name) {
			return fmt.Errorf("list %s is given more than once", name)
		}
	}
	source, err := b.Settings.Client(b.Config.Secret, new(lookup.Database), nil)
	if err != nil {
		return err
	}
	store, err := updater.OpenStore(u.dir, b.Settings.Origin(b.Config.Secret))
	if err != nil {
		return err
	}
	if u.schedule, err = updater.ReadSchedule(store); err != nil {
		u.complain("%v", err)
	}
	u.updater, err = updater.New(updater.Config{
		Source: source, Database: new(lookup.Database), Schedule: u.schedule, Store: store,
		Lists: u.names, LikelySafe: protocol.GlobalCache, MaxEntries: b.Config.MaxEntries, Report: u.report,
		FirstContact: func() time.Duration { return u.firstContact(now) },
	})
	return err
}

// firstContact returns a random delay before the request, and announces it at a terminal
// ("Request Frequency").
func (u *fetching) firstContact(now bool) time.Duration {
	if now {
		return 0
	}
	delay := rand.N(time.Minute)
	if control.IsTerminal(u.errOut) {
		u.complain("sending the request in %s (-now skips this delay)", delay.Round(time.Second))
	}
	return delay
}

// report records an event of the updater.
func (u *fetching) report(e updater.Event) {
	words := map[updater.Kind]string{
		updater.Loaded: "waiting", updater.ListWaiting: "waiting", updater.ListUpdated: "updated",
		updater.ListUnchanged: "unchanged", updater.ListRejected: "rejected",
		updater.ListRefused: "refused",
	}
	switch e.Kind {
	case updater.Fetched:
		u.err = e.Err
	case updater.LoadFailed:
		u.complain("%s: %v", e.List, e.Err)
	case updater.StoreFailed:
		u.unsaved = true
		u.complain("%v", e.Err)
	default:
		word, ok := words[e.Kind]
		if !ok {
			return
		}
		o := outcome{Name: e.List, Outcome: word, Entries: e.Entries, NotBefore: say.Stamp(e.Due)}
		if e.Err != nil {
			o.Error = text(e.Err.Error())
		}
		u.outcomes[e.List] = o
	}
}

func (u *fetching) run(ctx context.Context) error {
	err := u.updater.Once(ctx)
	notDue := new(updater.NotDueError)
	switch {
	case errors.Is(err, updater.ErrBusy):
		return fmt.Errorf("%s: %w: a running CoreDNS updates its lists by itself", u.dir, err)
	case errors.As(err, &notDue):
		u.print()
		return u.nothingDue(notDue.Until)
	case err != nil:
		return err
	}
	u.print()
	if u.err != nil {
		return u.err
	}
	bad := u.unsaved
	for _, o := range u.outcomes {
		bad = bad || o.Outcome == "rejected" || o.Outcome == "refused"
	}
	return u.end(bad)
}

// nothingDue prints until when no list is due, and why. Only a back-off is bad news.
func (u *fetching) nothingDue(until time.Time) error {
	when := fmt.Sprintf("nothing is due before %s, in %s", say.Time(until), time.Until(until).Round(time.Second))
	hold := u.schedule.FetchHold(u.names)
	if hold.Failures > 0 {
		u.complain("%s, also with -now: %v", when, hold)
	} else if !u.json {
		u.printf("%s\n", when)
	}
	return u.end(hold.Failures > 0)
}

// print prints the outcome of each list, in the order of names.
func (u *fetching) print() {
	for _, name := range u.names {
		o, ok := u.outcomes[name]
		if o.Outcome == "waiting" { // since the event another list may have failed, which holds for all
			o.NotBefore = say.Stamp(u.schedule.FetchHold([]string{name}).Until)
		}
		switch {
		case !ok:
		case u.json:
			u.object(o)
		default:
			due, _ := time.Parse(time.RFC3339, o.NotBefore)
			u.printf("%s: %s, %s, next not before %s\n", o.Name, o.Outcome, say.Count(o.Entries, "entry", "entries"), say.Time(due))
			if o.Error != "" {
				u.printf("    error: %s\n", say.Shown(string(o.Error)))
			}
		}
	}
}

// fromCorefile takes folder, server, lists and key from a Corefile with exactly one engine that uses Safe Browsing
// and keeps lists.
func (u *fetching) fromCorefile(c *cli.Command) (cfg config.Config, err error) {
	for _, flag := range []string{"db", "endpoint", "protocol", "lists"} {
		if c.IsSet(flag) {
			return cfg, fmt.Errorf("-corefile and -%s are both given: keep one of the two", flag)
		}
	}
	path := corefileOf(c)
	blocks, err := parseCorefile(path)
	if err != nil {
		return cfg, err
	}
	all := slices.DeleteFunc(enginesOf(blocks), func(b serverBlock) bool { return !b.Config.Online })
	switch {
	case len(all) == 0:
		return cfg, fmt.Errorf("%s has no API key and no endpoint: only your own lists are in force, and nothing is fetched", path)
	case len(all) > 1:
		return cfg, fmt.Errorf("%s has several settings for Safe Browsing, %s: select one with -db, -endpoint, -protocol and -lists", path, named(all))
	case len(all[0].Settings.Stored()) == 0:
		return cfg, fmt.Errorf("%s has mode nostorage, which keeps no lists", all[0].stanza())
	case all[0].Config.DB == "":
		return cfg, fmt.Errorf("%s has db off: CoreDNS keeps its lists in memory only, and there is no folder to fill", all[0].stanza())
	}
	u.dir = all[0].Config.DB
	return all[0].Config, nil
}

// fromFlags takes the folder and the server from the command line.
func (u *fetching) fromFlags(c *cli.Command) (cfg config.Config, err error) {
	if u.dir = c.String("db"); !c.IsSet("db") {
		if u.dir, err = config.DefaultFolder(); err != nil {
			return cfg, fmt.Errorf("there is no default folder, use -db or -corefile: %w", err)
		}
	}
	dialect, err := protocol.ParseDialect(c.String("protocol"))
	if err != nil {
		return cfg, fmt.Errorf("-protocol: %w", err)
	}
	endpoint, err := endpointOf(c, dialect)
	if err != nil {
		return cfg, err
	}
	names, err := heldIn(u.dir, dialect.Origin(endpoint, ""))
	if err != nil {
		return cfg, err
	}
	if names = slices.DeleteFunc(names, func(name string) bool { return checkList(dialect, name, endpoint) != nil }); len(names) == 0 {
		names = nil // the default
	}
	if c.IsSet("lists") {
		names = strings.Split(c.String("lists"), ",")
	}
	for _, name := range names {
		if err := checkList(dialect, name, endpoint); err != nil {
			return cfg, fmt.Errorf("-lists: %w", err)
		}
	}
	key, _, err := config.KeyOfProcess()
	if err != nil {
		return cfg, err
	}
	return configOf(endpoint, dialect, key, names), nil
}

// endpointOf returns the URL in -endpoint, or several of them in one order, since the
// origin of lists does not depend on the order in the Corefile.
func endpointOf(c *cli.Command, d *protocol.Dialect) (string, error) {
	urls := strings.Fields(c.String("endpoint"))
	if len(urls) == 0 {
		return d.Endpoint, nil
	}
	for i, url := range urls {
		urls[i] = strings.TrimSuffix(url, "/")
	}
	slices.Sort(urls)
	endpoint, err := strings.Join(urls, " "), protocol.CheckEndpoints(urls)
	switch {
	case err != nil:
		return "", fmt.Errorf("-endpoint: %w", err)
	case !d.Serves(endpoint):
		return "", fmt.Errorf("%s does not speak protocol %s: leave out -endpoint, or name another protocol", endpoint, d)
	case len(urls) > 1 && d != protocol.DialectV5:
		return "", fmt.Errorf("-endpoint: protocol %s asks one server", d)
	}
	return endpoint, nil
}

// checkList returns why a list cannot be fetched from an endpoint, or nil.
func checkList(d *protocol.Dialect, name, endpoint string) error {
	if name == protocol.GlobalCache && slices.Contains(d.Modes, lookup.RealTime) {
		return nil
	}
	return d.CheckList(name, protocol.IsGoogle(endpoint))
}

// heldIn returns the names of the lists in a folder. It is an error if they came from a
// server that the origin does not take over from.
func heldIn(dir string, origin updater.Origin) (names []string, err error) {
	all, err := updater.Status(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) {
		return nil, err
	}
	for _, s := range all {
		if s.Origin != "" && !origin.Serves(s.Origin) {
			other, by := protocol.SplitOrigin(s.Origin)
			flag := other
			if strings.Contains(flag, " ") { // several endpoints are one argument
				flag = "'" + flag + "'"
			}
			return nil, fmt.Errorf("%s holds lists of %s: use -endpoint %s -protocol %s, or another folder", dir, other, flag, by)
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// dialectNames lists the protocols for the help of an option.
func dialectNames() string {
	names := protocol.DialectNames()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// configOf returns the default properties with the service of a protocol. key may be "". An endpoint of "" is the
// protocol's own. If lists is nil, the default lists are used.
func configOf(endpoint string, d *protocol.Dialect, key string, lists []string) (cfg config.Config) {
	cfg.Online, cfg.Service, cfg.Secret = true, d.Service, key
	cfg.Zones = []string{"."}
	cfg.Engine = config.Engine{Endpoint: endpoint, Protocol: d.Name, APIKey: key, Lists: config.DefaultLists}
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return cfg
}
