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

	"github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func update() *cli.Command {
	return &cli.Command{
		Name:  "update",
		Usage: "fetch the lists that are due into a folder, once",
		Description: `Asks the server once for those lists that it allows to be asked for now. If it
allows none the command says until when, and asks nothing. It also refuses a
folder that a running CoreDNS keeps fresh by itself. The key is read from
$SAFEBROWSING_API_KEY; a server of your own may need none.

   SAFEBROWSING_API_KEY=... safebrowsing update -db /var/lib/coredns
   safebrowsing update -db ./lists -endpoint http://127.0.0.1:8099 -now

The server's rules ask each program to wait up to a minute, at random, before it
asks for the first time. -now leaves out this minute and nothing else: meant for
a person who waits, not for a timer.

The JSON of a list is {"name","outcome","entries","not_before","error"}; outcome
is updated, unchanged, rejected (it failed its checks, what was held stays) or
waiting. The exit status is 1 if a list was rejected, 2 if nothing was fetched.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "db", Usage: "the `FOLDER` for the lists", Required: true},
			&cli.StringFlag{Name: "endpoint", Usage: "the `URL` of the server", Value: protocol.DefaultEndpoint},
			&cli.StringFlag{Name: "protocol", Usage: "the `VERSION` of the protocol, v5 or v4", Value: "v5"},
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
	progress *progress

	names    []string
	outcomes map[string]outcome // by name
	err      error              // of the request
	unsaved  bool               // something could not be saved
}

// outcome is what became of one list.
type outcome struct {
	Name      string `json:"name"`
	Outcome   string `json:"outcome"`
	Entries   int    `json:"entries"`
	NotBefore string `json:"not_before"`
	Error     text   `json:"error"`
}

func newUpdate(c *cli.Command) (*fetching, error) {
	u := &fetching{console: newConsole(c), dir: c.String("db"), outcomes: make(map[string]outcome)}
	endpoint, key := strings.TrimSuffix(c.String("endpoint"), "/"), os.Getenv(keyVariable)
	if key == "" && endpoint == protocol.DefaultEndpoint {
		return nil, errors.New("no API key: set $" + keyVariable + ", or -endpoint for a server of your own")
	}
	version, err := protocol.ParseVersion(c.String("protocol"))
	if err != nil {
		return nil, fmt.Errorf("-protocol: %w", err)
	}
	held, err := heldIn(u.dir, endpoint)
	if err != nil {
		return nil, err
	}
	if u.names = held; c.IsSet("lists") {
		u.names = strings.Split(c.String("lists"), ",")
	}
	offline, err := safebrowsing.OpenFolder("", endpoint, version, key, u.names)
	if err != nil {
		return nil, err
	}
	defer offline.Close()
	u.names = offline.Lists()
	source, err := offline.Client(nil)
	if err != nil {
		return nil, err
	}
	u.progress = newProgress(u.errOut)
	return u, u.prepare(source, offline.Origin(), c.Bool("now"))
}

// heldIn returns the names of the lists in a folder, none if it has none. Lists
// of another server are an error: its schedule would be mixed with this one's.
func heldIn(dir, endpoint string) (names []string, err error) {
	all, err := updater.Status(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) {
		return nil, err
	}
	endpoints, _ := originsOf(all)
	for _, other := range endpoints {
		if other != endpoint {
			return nil, fmt.Errorf("%s holds lists of %s: give -endpoint %s, or another folder", dir, other, other)
		}
	}
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, nil
}

// prepare makes the updater. It changes the folder only to make it.
func (u *fetching) prepare(source updater.Source, origin updater.Origin, now bool) error {
	for i, name := range u.names { // before a folder is made for nothing
		if _, err := updater.Width(name); err != nil {
			return err
		}
		if slices.Contains(u.names[:i], name) {
			return fmt.Errorf("list %s is named twice", name)
		}
	}
	store, err := updater.OpenStore(u.dir, origin)
	if err != nil {
		return err
	}
	schedule, err := updater.ReadSchedule(store)
	if err != nil {
		u.complain("%v", err)
	}
	u.updater, err = updater.New(updater.Config{
		Source: source, Database: new(lookup.Database), Schedule: schedule, Store: store,
		Lists: u.names, LikelySafe: likelySafe, Report: u.report,
		FirstContact: func() time.Duration { return u.firstContact(now) },
	})
	return err
}

// firstContact draws the delay before the request and shows what it waits for.
func (u *fetching) firstContact(now bool) time.Duration {
	var delay time.Duration
	if !now {
		delay = rand.N(time.Minute)
	}
	u.progress.show(func(at time.Time, begun time.Time) string {
		if left := begun.Add(delay).Sub(at); left > 0 {
			return fmt.Sprintf("asking the server in %d s (-now leaves out this delay)", int(left.Seconds())+1)
		}
		return fmt.Sprintf("fetching %s: %d s", strings.Join(u.names, ", "), int(at.Sub(begun.Add(delay)).Seconds()))
	})
	return delay
}

// report takes in what the updater tells.
func (u *fetching) report(e updater.Event) {
	words := map[updater.Kind]string{
		updater.Loaded: "waiting", updater.ListWaiting: "waiting", updater.ListUpdated: "updated",
		updater.ListUnchanged: "unchanged", updater.ListRejected: "rejected",
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
	u.progress.stop()
	notDue := new(updater.NotDueError)
	switch {
	case errors.Is(err, updater.ErrBusy):
		return fmt.Errorf("%s: %w: a running CoreDNS keeps its lists fresh by itself", u.dir, err)
	case errors.As(err, &notDue):
		u.print()
		return fmt.Errorf("%w, in %s: the server's rules, kept in the folder's schedule, forbid it; -now changes nothing about that",
			err, time.Until(notDue.Until).Round(time.Second))
	case err != nil:
		return err
	}
	u.print()
	if u.err != nil {
		return u.err
	}
	bad := u.unsaved
	for _, o := range u.outcomes {
		bad = bad || o.Outcome == "rejected"
	}
	return u.end(bad)
}

// print prints what became of each list, in their order.
func (u *fetching) print() {
	for _, name := range u.names {
		o, ok := u.outcomes[name]
		switch {
		case !ok:
		case u.json:
			u.object(o)
		default:
			u.printf("%s: %s, %d entries, next not before %s\n", o.Name, o.Outcome, o.Entries, orDash(o.NotBefore))
			if o.Error != "" {
				u.printf("    error: %s\n", shown(string(o.Error)))
			}
		}
	}
}
