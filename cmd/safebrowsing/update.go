package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const updateHelp = `Fetches the lists that the server allows to be asked for now, with one request.
If none is due, no request is sent, and the command says until when. It refuses
a folder that a running CoreDNS keeps fresh by itself.

Folder, server, lists and key are those of the Corefile with -corefile. Without
it the key is read from $SAFEBROWSING_API_KEY; a server of your own may need none.

   safebrowsing update -corefile /etc/coredns/Corefile
   SAFEBROWSING_API_KEY=... safebrowsing update -db /var/lib/coredns
   safebrowsing update -db ./lists -endpoint http://127.0.0.1:8099 -now

The server's rules ask each program to wait up to a minute, at random, before its
first request. -now leaves out this delay and nothing else. It is for a person
who waits, not for a timer.

The JSON of a list is {"name","outcome","entries","not_before","error"}; outcome
is updated, unchanged, rejected (it failed its checks, the old content stays) or
waiting. The exit status is 0 also if nothing is due. It is 1 if a list was
rejected or could not be saved, or if nothing is due because the last update
failed. It is 2 if the request failed or could not be sent.`

func update() *cli.Command {
	return &cli.Command{
		Name:        "update",
		Usage:       "fetch the lists that are due into a folder, once",
		Description: updateHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "fetch what the CoreDNS of this `FILE` would"},
			folderFlag("the `FOLDER` for the lists"),
			&cli.StringFlag{Name: "endpoint", Usage: "the `URL` of the server", Value: protocol.DefaultEndpoint},
			&cli.StringFlag{Name: "protocol", Usage: "the `PROTOCOL` by which the server is asked: " + dialectNames(), Value: protocol.DialectV5.Name},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists, with commas between (default: those in the folder, else those that the plugin uses)"},
			&cli.BoolFlag{Name: "now", Usage: "leave out the random delay of up to a minute"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("update takes no argument such as %q, see safebrowsing update -h", c.Args().First())
			}
			u, err := newUpdate(c)
			if err != nil {
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

	names    []string
	outcomes map[string]outcome // by name
	err      error              // of the request
	unsaved  bool               // something could not be saved
}

// outcome is the result for one list.
type outcome struct {
	Name      string `json:"name"`
	Outcome   string `json:"outcome"`
	Entries   int    `json:"entries"`
	NotBefore string `json:"not_before"`
	Error     text   `json:"error"`
}

func newUpdate(c *cli.Command) (*fetching, error) {
	u := &fetching{console: newConsole(c), outcomes: make(map[string]outcome)}
	open := u.fromFlags
	if c.IsSet("corefile") {
		open = u.fromCorefile
	}
	offline, err := open(c)
	if err != nil {
		return nil, err
	}
	defer offline.Close()
	if offline.Key() == "" && offline.Endpoint() == protocol.DefaultEndpoint {
		return nil, errors.New("no API key: set $" + config.KeyVariable + ", or -endpoint for a server of your own")
	}
	u.names = offline.Lists()
	return u, u.prepare(offline, c.Bool("now"))
}

// prepare makes the updater. It changes the folder only to make it.
func (u *fetching) prepare(offline *Offline, now bool) error {
	for i, name := range u.names { // before a folder is made for nothing
		if _, err := updater.Width(name); err != nil {
			return err
		}
		if slices.Contains(u.names[:i], name) {
			return fmt.Errorf("list %s is named twice", name)
		}
	}
	source, err := offline.Client(nil)
	if err != nil {
		return err
	}
	store, err := updater.OpenStore(u.dir, offline.Origin())
	if err != nil {
		return err
	}
	if u.schedule, err = updater.ReadSchedule(store); err != nil {
		u.complain("%v", err)
	}
	u.updater, err = updater.New(updater.Config{
		Source: source, Database: new(lookup.Database), Schedule: u.schedule, Store: store,
		Lists: u.names, LikelySafe: protocol.GlobalCache, MaxEntries: offline.MaxEntries(), Report: u.report,
		FirstContact: func() time.Duration { return u.firstContact(now) },
	})
	return err
}

// firstContact draws the delay before the request, and tells a person of it.
func (u *fetching) firstContact(now bool) time.Duration {
	if now {
		return 0
	}
	delay := rand.N(time.Minute)
	if isTerminal(u.errOut) {
		u.complain("the request is sent in %s (-now leaves out this delay)", delay.Round(time.Second))
	}
	return delay
}

// report notes an event of the updater.
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
		o := outcome{Name: e.List, Outcome: word, Entries: e.Entries, NotBefore: stamp(e.Due)}
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
		return fmt.Errorf("%s: %w: a running CoreDNS keeps its lists fresh by itself", u.dir, err)
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

// nothingDue says until when, and why. It is good news, unless it is a back-off.
func (u *fetching) nothingDue(until time.Time) error {
	when := fmt.Sprintf("nothing is due before %s, in %s", stamp(until), time.Until(until).Round(time.Second))
	hold := u.schedule.FetchHold(u.names)
	if hold.Failures > 0 {
		u.complain("%s, also with -now: %v", when, hold)
	} else if !u.json {
		u.printf("%s\n", when)
	}
	return u.end(hold.Failures > 0)
}

// print prints the outcome of each list, in their order.
func (u *fetching) print() {
	for _, name := range u.names {
		o, ok := u.outcomes[name]
		switch {
		case !ok:
		case u.json:
			u.object(o)
		default:
			u.printf("%s: %s, %s, next not before %s\n", o.Name, o.Outcome, count(o.Entries, "entry", "entries"), orDash(o.NotBefore))
			if o.Error != "" {
				u.printf("    error: %s\n", shown(string(o.Error)))
			}
		}
	}
}
