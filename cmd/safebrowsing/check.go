package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const checkHelp = `Prints for each argument the verdict and its reason: the list and the expression
that matched, or the line of your own list. A URL is checked by its host: DNS
sees nothing else of it. "-" reads names from standard input, the first word of
each line, and skips lines that begin with #.

With -corefile the command decides like a CoreDNS with this Corefile, with your
own lists and zones. If the view plugin selects the server blocks, the block for
clients in no view decides; -view NAME selects another. With -db only the lists
in a folder count. A CoreDNS may use the same folder at the same time.

The command sends no request, except with -confirm: then it asks the server to
confirm a suspected name, as a query would, within 10 seconds. If the Corefile
has no key, it uses $SAFEBROWSING_API_KEY. By other protocols than v5 only CoreDNS searches,
because it keeps the server's waits, and the budget: -confirm says so.

   safebrowsing check -corefile /etc/coredns/Corefile example.com
   safebrowsing check -db /var/lib/coredns -json https://example.com/login
   safebrowsing check -corefile /etc/coredns/Corefile - < names.txt
   SAFEBROWSING_API_KEY=... safebrowsing check -db /var/lib/coredns -confirm example.com

The exit status is 0 if all names are safe. It is 1 if one is unsafe, unsure or
not a name, or if a list is missing, because then "safe" means little.`

func check() *cli.Command {
	return &cli.Command{
		Name:            "check",
		Usage:           "print whether names would be blocked, and why",
		ArgsUsage:       "NAME|URL...",
		HideHelpCommand: true, // "help" is a name like any other
		Description:     checkHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "decide as the CoreDNS of this `FILE`"},
			folderFlag("decide by the lists in this `FOLDER`"),
			&cli.StringFlag{Name: "view", Usage: "decide for clients in the view `NAME` of the Corefile"},
			&cli.BoolFlag{Name: "confirm", Usage: "ask the server to confirm suspected names"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			k, err := newChecker(c)
			if err != nil {
				return err
			}
			defer k.close()
			return k.checkAll(ctx, c.Args().Slice(), c.Root().Reader)
		},
	}
}

// confirmTimeout is the most time for the confirmation of one name.
const confirmTimeout = 10 * time.Second

// checker decides on names.
type checker struct {
	*console
	blocks  []serverBlock // with -db a single one, made for the folder
	view    string        // decide for its clients; "": for clients in no view
	confirm bool
}

func newChecker(c *cli.Command) (k *checker, err error) {
	switch {
	case c.NArg() == 0:
		return nil, errors.New("check takes names or URLs, see safebrowsing check -h")
	case c.IsSet("corefile") && c.IsSet("db"):
		return nil, errBothGiven
	case c.IsSet("view") && !c.IsSet("corefile"):
		return nil, errors.New("-view is for a Corefile: add -corefile")
	}
	k = &checker{console: newConsole(c), view: c.String("view"), confirm: c.Bool("confirm")}
	if c.IsSet("corefile") {
		k.blocks, err = readCorefile(c.String("corefile"))
		if err == nil && k.view != "" {
			if err = checkView(k.blocks, k.view); err != nil {
				k.close()
			}
		}
		return k, err
	}
	dir, err := folderOf(c)
	if err != nil {
		return nil, err
	}
	o, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	if k.confirm && whyNoConfirm(o.Settings.Dialect()) == nil && o.Config.Secret == "" && o.Settings.Google() {
		return nil, errors.New("no API key: set $" + config.KeyVariable + ", or leave out -confirm")
	}
	k.blocks = []serverBlock{{Block: o, Listening: config.Listening{Listeners: []config.Listener{{Zone: "."}}}}}
	return k, nil
}

// openFolder returns a server block with all lists of a folder and with the server that they
// came from.
func openFolder(dir string) (*block.Block, error) {
	all, err := updater.Status(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: use -db for another folder, or -corefile", err)
	}
	endpoints, by := originsOf(all)
	if len(endpoints) > 1 {
		return nil, fmt.Errorf("%s holds lists of several servers, %s: use -corefile", dir, strings.Join(endpoints, " and "))
	}
	endpoint := ""
	if len(endpoints) == 1 && endpoints[0] != by.Endpoint {
		endpoint = endpoints[0]
	}
	var names []string
	for _, s := range all {
		if s.Name != protocol.GlobalCache {
			names = append(names, s.Name)
		}
	}
	key, _, err := config.KeyOfProcess()
	if err != nil {
		return nil, err
	}
	return openFolderOf(dir, endpoint, by, key, names)
}

// openFolderOf returns a server block with the default properties and the lists of a folder, which
// were fetched by protocol d. key may be "". An endpoint of "" is the protocol's own. If lists
// is nil, the default lists are used.
func openFolderOf(dir, endpoint string, d *protocol.Dialect, key string, lists []string) (*block.Block, error) {
	cfg := config.Config{Block: config.Block{Zones: []string{"."}, Reply: answer.Reply{Service: d.Service}}, Online: true}
	cfg.Engine, cfg.Secret = config.Engine{DB: dir, Endpoint: endpoint, Protocol: d.Name, APIKey: key, Lists: config.DefaultLists}, key
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return openBlock(cfg)
}

// originsOf returns the endpoints that lists came from, sorted, and the protocol that can use
// the lists. If they came by several protocols, it is the one that CoreDNS prefers.
func originsOf(all []updater.ListStatus) (endpoints []string, by *protocol.Dialect) {
	came := make(map[*protocol.Dialect]bool)
	for _, s := range all {
		if s.Origin != "" {
			endpoint, d := protocol.SplitOrigin(s.Origin)
			endpoints, came[d] = append(endpoints, endpoint), true
		}
	}
	dialects := protocol.Dialects()
	by = dialects[max(0, slices.IndexFunc(dialects, func(d *protocol.Dialect) bool { return came[d] }))]
	slices.Sort(endpoints)
	return slices.Compact(endpoints), by
}

// whyNoConfirm returns why the command line must not search by the protocol, or nil.
func whyNoConfirm(d *protocol.Dialect) error {
	switch {
	case d.Paid:
		return fmt.Errorf("only CoreDNS searches by protocol %s: each search costs money, and CoreDNS counts it towards the budget", d)
	case d.SearchRules.Published:
		return fmt.Errorf("only CoreDNS searches by protocol %s: the server's minimum wait is for all searches with a key", d)
	}
	return nil
}

func (k *checker) close() { closeBlocks(k.blocks) }

func (k *checker) checkAll(ctx context.Context, args []string, in io.Reader) error {
	for _, warning := range warningsOf(k.blocks) {
		k.complain("%s", warning)
	}
	bad := k.complainOfLists()
	err := eachName(ctx, args, in, func(name string) {
		f := k.check(ctx, name)
		if ctx.Err() != nil {
			return // the user has stopped the command: this verdict is only the cancellation
		}
		bad = bad || f.Err != nil || f.Verdict != lookup.Safe
		if k.json {
			k.object(f.object())
		} else {
			k.finding(f)
		}
	})
	if err != nil {
		return err
	}
	return k.end(bad)
}

// complainOfLists prints which lists are missing or damaged, each problem once.
func (k *checker) complainOfLists() (bad bool) {
	said := make(map[string]bool)
	for _, b := range k.blocks {
		if b.Block == nil {
			continue
		}
		for _, problem := range problemsOf(b.Block) {
			if !said[problem] {
				k.complain("%s", problem)
			}
			said[problem], bad = true, true
		}
	}
	return bad
}

// problemsOf returns the reasons why the lists here may not hold a name that they hold
// elsewhere.
func problemsOf(o *block.Block) (all []string) {
	if !o.Config.Online || len(o.Settings.Stored()) == 0 {
		return nil
	}
	switch _, err := os.Stat(o.Config.DB); {
	case o.Config.DB == "":
		return []string{"CoreDNS keeps its lists in memory only (db off), so they cannot be read here"}
	case err != nil:
		return []string{fmt.Sprintf("no list has been fetched yet: %v", err)}
	}
	for _, problem := range o.Problems() {
		all = append(all, problem.Error())
	}
	return all
}
