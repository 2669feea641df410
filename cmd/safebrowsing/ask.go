package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
)

// Commands of this file ask the CoreDNS that runs, see internal/control.

func corefileFlag() cli.Flag {
	return &cli.StringFlag{Name: "corefile", Usage: "the `COREFILE` of the server (default: Corefile, else the one of /etc/coredns-safebrowsing or /etc/coredns)"}
}

// corefileOf returns the Corefile of a command line, or "" if there is none.
func corefileOf(c *cli.Command) string {
	path := c.String("corefile")
	if path == "" {
		path = control.Corefile()
	}
	if path != "" {
		control.UseCredential(path)
	}
	return path
}

// askFlags are the flags of all commands that ask a server.
func askFlags(more ...cli.Flag) []cli.Flag {
	return append(more, corefileFlag(), &cli.StringFlag{Name: "db", Usage: "ask the server that has its lists in this `FOLDER`"}, jsonFlag())
}

// commandOf returns what a command line asks.
func commandOf(c *cli.Command, word string, names ...string) *control.Command {
	folders, unread := doorsOf(c)
	return &control.Command{Word: word, Names: names, JSON: c.Bool("json"), Tool: "safebrowsing", Folders: folders, Unread: unread}
}

// doorsOf returns where the door of the server may be that a command line means, and why the Corefile, which
// may say more, cannot be read.
func doorsOf(c *cli.Command) (folders []string, unread error) {
	if folder := c.String("db"); folder != "" {
		return block.Beside(folder), nil
	}
	all := block.Folders()
	path := corefileOf(c)
	if path == "" {
		return all, nil
	}
	blocks, err := protectedBlocks(path)
	switch {
	case err != nil && c.IsSet("corefile") && !control.Usual(path):
		return nil, err
	case err != nil:
		return all, err
	}
	return doorsFor(path, c.IsSet("corefile"), blocks), nil
}

// doorsFor returns where the door of the server of a Corefile may be. If the Corefile is given, the
// server of another one must not answer.
func doorsFor(path string, given bool, blocks []serverBlock) []string {
	all := block.Folders()
	var of []string
	for _, b := range ours(blocks) {
		if folder := b.Config.PauseFolder(); folder != "" && !slices.Contains(of, folder) {
			of = append(of, block.Beside(folder)...)
		}
	}
	if given && len(of) > 0 && !control.Usual(path) {
		return of
	}
	if given { // of two servers that run, its own is asked
		return append(of, all...)
	}
	return append(all, of...)
}

// asking returns the action of a command that asks.
func asking(word string, also func(c *cli.Command, asked *control.Command) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		asked := commandOf(c, word, c.Args().Slice()...)
		if also != nil {
			if err := also(c, asked); err != nil {
				return err
			}
		}
		return asked.Run(ctx, c.Root().Writer)
	}
}

// alone refuses arguments.
func alone(c *cli.Command, _ *control.Command) error {
	if c.NArg() > 0 {
		return fmt.Errorf("%s takes no argument such as %q, see safebrowsing %s -h", c.Name, c.Args().First(), c.Name)
	}
	return nil
}

// told returns a command without arguments that asks.
func told(word, usage, help string) *cli.Command {
	return &cli.Command{Name: word, Usage: usage, Description: help, Flags: askFlags(), Action: asking(word, alone)}
}

func statusCommand() *cli.Command {
	return told("status", "print whether the network is protected, by what, and what is next",
		`Asks the CoreDNS that runs on this machine whether it protects, by what, what was
blocked, and what is next. "safebrowsing" alone prints the most important lines of it.

   sudo safebrowsing status
   sudo safebrowsing status -json | jq -r '.causes[].text'

The exit status is 0 if the network is protected, and 1 if it is not, only in part, or
by lists of your own only; also if CoreDNS does not run. The state in JSON is protected,
in_part, own_lists or not_protected.`)
}

func listsCommand() *cli.Command {
	return told("lists", "print the lists: what they hold, their age and the next fetch",
		`Asks the CoreDNS that runs on this machine for its lists.

   sudo safebrowsing lists`)
}

func blockedCommand() *cli.Command {
	return told("blocked", "print the names that were blocked in the last hour, and why",
		`Asks the CoreDNS that runs on this machine which names it has blocked, the last one
first. They are in its memory only, for an hour. Who asked is told where the Corefile
has the property log.

   sudo safebrowsing blocked`)
}

func whyCommand() *cli.Command {
	return &cli.Command{
		Name:            "why",
		Aliases:         []string{"check"},
		Usage:           "print whether names are blocked, and why",
		ArgsUsage:       "NAME|URL...",
		HideHelpCommand: true, // "help" is a name like any other
		Description: `Asks the CoreDNS that runs on this machine what it does with names: blocked, suspected,
passes, or unknown if no list there could tell; by which list, entry and line, and what
lets the name pass. What was blocked in the last hour is told, also if it was the alias
of another name; where the Corefile has look_back, also who got it while it passed.
A URL is looked up by its host: DNS sees nothing else of it. "-" reads
names from standard input, the first word of each line, and skips lines that begin with #.

The service is asked only with -confirm, as a query for a suspected name would.

   sudo safebrowsing why shop.example.org
   sudo safebrowsing why -json https://example.com/login
   sudo safebrowsing why -confirm example.com

The exit status is 0 if all names pass, else 1.`,
		Flags: askFlags(&cli.BoolFlag{Name: "confirm", Usage: "ask the service to confirm suspected names"}),
		Action: func(ctx context.Context, c *cli.Command) error {
			asked := commandOf(c, "why")
			asked.Confirm = c.Bool("confirm")
			if err := eachName(ctx, c.Args().Slice(), c.Root().Reader, func(name string) { asked.Names = append(asked.Names, name) }); err != nil {
				return err
			}
			return asked.Run(ctx, c.Root().Writer)
		},
	}
}

func pauseCommand() *cli.Command {
	return &cli.Command{
		Name:            "pause",
		Usage:           "let every name pass for a while",
		ArgsUsage:       "[DURATION|off]",
		HideHelpCommand: true,
		Description: `Lets every name pass for a while: CoreDNS blocks nothing, checks nothing and asks no
server. It ends by itself, and is in the log and in the metric coredns_safebrowsing_paused.
The own lists of the operator are paused too. Without an argument the command prints the
pauses that are in force.

A pause is for all server blocks of the Corefile, or with -block for those that
check a zone. It ends when CoreDNS is restarted, unless -keep is given; a reload
does not end it. It is a file in the folder of the lists: who may write there may
pause.

   sudo safebrowsing pause 10m
   sudo safebrowsing pause -block example.org 2h
   sudo safebrowsing pause
   sudo safebrowsing resume`,
		Flags: askFlags(
			&cli.StringFlag{Name: "block", Usage: "pause only the server blocks that check this `ZONE`"},
			&cli.BoolFlag{Name: "keep", Usage: "keep the pause after a restart of CoreDNS"}),
		Action: asking("pause", func(c *cli.Command, asked *control.Command) error {
			asked.Zone, asked.Keep = c.String("block"), c.Bool("keep")
			return nil
		}),
	}
}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name:  "resume",
		Usage: "end a pause",
		Description: `Ends a pause now, as pause off does.

   sudo safebrowsing resume`,
		Flags: askFlags(&cli.StringFlag{Name: "block", Usage: "only for the server blocks that check this `ZONE`"}),
		Action: asking("resume", func(c *cli.Command, asked *control.Command) error {
			asked.Zone = c.String("block")
			return alone(c, asked)
		}),
	}
}

func unblockCommand() *cli.Command {
	return &cli.Command{
		Name:            "unblock",
		Usage:           "take back a host that block has blocked",
		ArgsUsage:       "HOST...",
		HideHelpCommand: true,
		Description: `Removes the entries of hosts from your own lists, as block -remove does. A host that
another list blocks stays blocked: use allow.

   sudo safebrowsing unblock games.example.org`,
		Flags:  askFlags(),
		Action: asking("unblock", nil),
	}
}
