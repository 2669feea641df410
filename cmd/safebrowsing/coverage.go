package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const coverageHelp = `Reads a feed of URLs, looks up what Safe Browsing looks up of each, host by host and
path by path, confirms what a list holds, and counts: listed by host, so DNS
stops it; by path only, so DNS cannot; not listed; and what your own lists add.

FILE has a URL in each line, as OpenPhish and URLhaus have it, or is CSV, the log of
a proxy (Squid's, or the common format), or the history of Chrome in JSON. "-" reads
standard input. A URL that comes twice counts once. Nothing but 4 bytes of hashes
leaves this machine, of those that a list holds.

The CoreDNS that runs here is asked, by its lists and budget, after all queries that
wait. If none runs, or with -endpoint, the lists are fetched into -db when they are
due, with the key in the Corefile or in $SAFEBROWSING_API_KEY.

   sudo safebrowsing coverage -dry-run feed.txt
   sudo safebrowsing coverage -svg coverage.svg feed.txt
   safebrowsing coverage -endpoint http://127.0.0.1:8099 -db lists -json - < feed.txt

With -resume a run that was stopped, or whose budget is spent, continues where it was,
with the answers that may still be used.

The JSON is one object, with the URLs by their fate: listed, which is by_host and
by_path, not_listed, and unconfirmed. The exit status is 1 if some are unconfirmed.`

func coverageCommand() *cli.Command {
	return &cli.Command{
		Name:            "coverage",
		Usage:           "count which URLs of a feed DNS stops, by Safe Browsing's lists",
		ArgsUsage:       "FILE|-",
		HideHelpCommand: true, // "help" is a file like any other
		Description:     coverageHelp,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Usage: "print how many searches it takes, and send none"},
			&cli.StringFlag{Name: "resume", Usage: "keep the answers in this `FILE` until all are there, and start from those in it"},
			&cli.IntFlag{Name: "searches", Usage: "send at most `N` searches (default: as many as it takes)"},
			&cli.StringFlag{Name: "svg", Usage: "draw the result into this `FILE`"},
			&cli.StringFlag{Name: "format", Usage: "the `FORM` of the feed: " + strings.Join(feedForms, ", ") + " (default: by its first line)"},
			&cli.StringFlag{Name: "column", Usage: "the `COLUMN` with the URL in CSV, its name or number (default: url)"},
			&cli.StringFlag{Name: "time", Usage: "the `COLUMN` with the time in CSV, its name or number"},
			corefileFlag(),
			&cli.StringFlag{Name: "db", Usage: "the `FOLDER` of the lists"},
			&cli.StringFlag{Name: "endpoint", Usage: "ask the server at this `URL`, not the CoreDNS that runs"},
			&cli.StringFlag{Name: "protocol", Usage: "the `PROTOCOL` of the server: " + dialectNames(), Value: protocol.DialectV5.Name},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists, separated by commas (default: as update)"},
			&cli.BoolFlag{Name: "now", Usage: "skip the random delay of up to a minute before the first request"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() != 1 {
				return errors.New("coverage takes one file, or - for standard input, see safebrowsing coverage -h")
			}
			m := &measuring{console: newConsole(c), source: c.Args().First(), feed: feedReader{c.String("format"), c.String("column"), c.String("time")}}
			if m.feed.Form != "" && !slices.Contains(feedForms, m.feed.Form) {
				return fmt.Errorf("-format: %q is not one of %s", m.feed.Form, strings.Join(feedForms, ", "))
			}
			if c.Int("searches") < 0 {
				return errors.New("-searches must not be negative")
			}
			return m.run(ctx, c)
		},
	}
}

// measuring is one run of coverage.
type measuring struct {
	*console
	source string
	feed   feedReader
	ask    confirmer
	end    func() // of ask
	about  block.Listings
	state  *state
	paid   bool
}

func (m *measuring) run(ctx context.Context, c *cli.Command) error {
	in := c.Root().Reader
	if m.source != "-" { // a named pipe will do, too: this waits for who writes
		f, err := awaited(ctx, func() (*os.File, error) { return os.Open(m.source) })
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if err := m.open(ctx, c); err != nil {
		return err
	}
	defer m.end()
	dialect, err := protocol.ParseDialect(m.about.Protocol)
	if err != nil {
		return err
	}
	m.paid = dialect.Paid
	begun := time.Now()
	counted := newCounter(m.ask, dialect.Rule, begun)
	if err := m.count(ctx, in, counted); err != nil {
		return err
	}
	if m.state, err = openState(c.String("resume"), m.about.Service+" at "+m.about.Address, begun); err != nil {
		return err
	}
	search := &confirming{counter: counted, state: m.state, perSearch: m.about.PerSearch, most: c.Int("searches")}
	prefixes, searches := search.plan()
	m.forecast(counted, prefixes, searches)
	f := m.found(counted, prefixes)
	if c.Bool("dry-run") {
		counted.finish(search.confirmed, m.state.has)
		f.counts(counted, searches)
		f.DryRun = true
		return m.tell(f, "")
	}
	if err := m.confirm(ctx, search, searches); err != nil {
		return err
	}
	counted.finish(search.confirmed, m.state.has)
	f.counts(counted, m.state.Searches)
	f.Stopped, f.Until = text(search.stopped), say.Stamp(search.until)
	if err := m.tell(f, c.String("svg")); err != nil {
		return err
	}
	return m.state.end() // all is known, and told
}

// confirm confirms all that is planned, in about the given number of searches.
func (m *measuring) confirm(ctx context.Context, search *confirming, searches int) error {
	if m.paid && m.about.Left < 0 && search.most == 0 && searches > 0 {
		return errors.New("each search costs money, and there is no budget: say with -searches how many may be sent")
	}
	if err := m.state.save(); err != nil { // before anything is sent
		return err
	}
	bar := progressbar.NewOptions(max(searches, 1), progressbar.OptionSetWriter(m.errOut), progressbar.OptionSetVisibility(control.IsTerminal(m.errOut)),
		progressbar.OptionSetDescription("searches"), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	search.progress = func(sent int) { _ = bar.Set(min(sent, searches)) }
	search.tell = func(format string, args ...any) {
		_ = bar.Clear()
		m.complain(format, args...)
	}
	err := search.run(ctx)
	_ = bar.Finish()
	if err == nil || ctx.Err() == nil {
		return err
	}
	how := "with -resume FILE the next run would continue from here"
	if m.state.path != "" {
		how = "run the same command again: it continues with what is in " + m.state.path
	}
	return fmt.Errorf("stopped after %s: %s", say.Count(search.sent, "search", "searches"), how)
}

// tell prints what was found, and draws it.
func (m *measuring) tell(f *findings, svg string) error {
	if m.json {
		m.object(f)
	} else {
		f.print(m.console)
	}
	if svg != "" {
		if err := files.Replace(svg, func(w *os.File) error { return errors.Join(f.draw(w), w.Chmod(0o644)) }); err != nil {
			return err
		}
	}
	return m.console.end(f.Unconfirmed > 0 && !f.DryRun)
}

// count reads the feed and looks its URLs up.
func (m *measuring) count(ctx context.Context, in io.Reader, c *counter) error {
	err := inBackground(ctx, func(give func(feedEntry) bool) error { return m.feed.read(in, give) }, func(e feedEntry) error { return c.take(ctx, e) })
	if err == nil {
		err = c.flush(ctx)
	}
	if err == nil && len(c.seen) == 0 {
		err = fmt.Errorf("no URL in %s", m.source)
		if c.total.Bad > 0 {
			err = fmt.Errorf("%w: line %d: %s", err, c.total.BadLines[0].Line, c.total.BadLines[0].Why)
		}
	}
	return err
}

// open finds who is asked: the CoreDNS that runs, or the lists in a folder.
func (m *measuring) open(ctx context.Context, c *cli.Command) (err error) {
	m.end = func() {}
	fromFlags := c.IsSet("endpoint") || c.IsSet("protocol") || c.IsSet("lists")
	client, err := (*control.Client)(nil), error(new(control.NotRunningError))
	if !fromFlags {
		folders, _ := doorsOf(c)
		client, err = control.Find(ctx, folders)
	}
	switch _, absent := errors.AsType[*control.NotRunningError](err); {
	case err == nil:
		m.ask = client
	case !absent:
		return err
	default:
		if err := m.openFolder(ctx, c, fromFlags || c.IsSet("db"), err); err != nil {
			return err
		}
	}
	if m.about, err = m.ask.Listings(ctx, block.Question{}); err != nil {
		m.end()
		return err
	}
	if len(m.about.Missing) > 0 {
		m.complain("of %s not in force: its entries count as not listed", strings.Join(m.about.Missing, ", "))
	}
	if m.about.Mode == lookup.RealTime.String() {
		m.complain("mode realtime also asks about names that no list holds: these are not counted here")
	}
	return nil
}

// openFolder fetches the lists that are due, and reads the folder.
func (m *measuring) openFolder(ctx context.Context, c *cli.Command, fromFlags bool, notRunning error) error {
	u := &fetching{console: m.console, outcomes: make(map[string]outcome)}
	from := u.fromFlags
	if !fromFlags || c.IsSet("corefile") {
		path := corefileOf(c)
		if path == "" {
			return notRunning
		}
		if err := c.Set("corefile", path); err != nil {
			return err
		}
		from = u.fromCorefile
	}
	cfg, err := u.open(c, from)
	if err != nil {
		return err
	}
	if err := m.fetch(ctx, u); err != nil {
		return err
	}
	cfg.DB = u.dir // a folder of -db is not in the configuration
	b := block.New(cfg)
	b.Need(block.NeededBy([]*block.Block{b}, nil))
	var delay func() time.Duration // of the first search; nil: as the service wants it
	if c.Bool("now") {
		delay = func() time.Duration { return 0 }
	}
	if err := b.ReadToSearch(delay); err != nil {
		return err
	}
	if lists, err := b.Stored.Lists(); err != nil || !slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return !l.Missing() }) {
		b.End()
		return fmt.Errorf("%s has no list that can be used: %w", u.dir, cmp.Or(u.err, err, errNoLists))
	}
	m.ask, m.end = b, b.End
	return nil
}

var errNoLists = errors.New("\"safebrowsing update\" says why")

// fetch fetches the lists that are due. Those of a CoreDNS that runs are left to it.
func (m *measuring) fetch(ctx context.Context, u *fetching) error {
	switch err := u.updater.Once(ctx); {
	case err == nil && u.err != nil:
		m.complain("the lists are as they were before: %v", u.err)
	case err == nil, errors.Is(err, updater.ErrBusy):
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		if _, notDue := errors.AsType[*updater.NotDueError](err); !notDue {
			return err
		}
		if hold := u.schedule.FetchHold(u.names); hold.Failures > 0 {
			m.complain("the lists are as they were before: %v", hold)
		}
	}
	return nil
}

// forecast says what it will cost, before anything is sent.
func (m *measuring) forecast(c *counter, prefixes, searches int) {
	cost, left := "", ""
	if m.paid {
		cost = fmt.Sprintf(", which cost %.2f US-$ at list price", float64(searches)/lookup.SearchesPerDollar)
	}
	if m.about.Left >= 0 {
		left = fmt.Sprintf("; %d are left today", m.about.Left)
	}
	m.complain("%s; a list holds %s of %s: at most %s of %s%s%s", say.Count(len(c.seen), "URL", "URLs"),
		say.Count(prefixes, "prefix", "prefixes"), say.Count(len(c.suspects), "URL", "URLs"),
		say.Count(searches, "search", "searches"), say.Count(m.about.PerSearch, "prefix", "prefixes"), cost, left)
}
