package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

const allowHelp = `Adds hosts to a file of allow, with all names below them. A running CoreDNS reads
the file within a second. The command edits the first file of allow in the
Corefile, or the one of -file, and says so if the Corefile does not use it. All
other lines stay as they are, except that entries that have ended are removed.

An exception ends by itself: -for takes 30m, 2h or 7d; -until takes 18:00 (the next
one), 2026-11-22 (the end of that day), "2026-11-22 18:00", or a time by RFC 3339.
Times are in the time zone of this machine.

   safebrowsing allow -for 30m shop.example.org
   safebrowsing allow -until 18:00 -corefile /etc/coredns/Corefile shop.example.org
   safebrowsing allow -list
   safebrowsing allow -remove shop.example.org`

const blockHelp = `Adds hosts to a file of block, with all names below them. A running CoreDNS reads
the file within a second. The command edits the first file of block in the
Corefile, or the one of -file, and says so if the Corefile does not use it. All
other lines stay as they are. Have a file of your own: the next download of a
published list would replace your entries.

   safebrowsing block games.example.org
   safebrowsing block -file /etc/coredns/block.txt games.example.org
   safebrowsing block -list
   safebrowsing block -remove games.example.org`

func allowCommand() *cli.Command {
	c := ownCommand(true)
	c.Usage, c.Description = "let a host pass, for a time or for ever", allowHelp
	c.Flags = append(c.Flags,
		&cli.StringFlag{Name: "for", Usage: "end the exception after this `DURATION`"},
		&cli.StringFlag{Name: "until", Usage: "end the exception at this `TIME`"})
	return c
}

func blockCommand() *cli.Command {
	c := ownCommand(false)
	c.Usage, c.Description = "block a host", blockHelp
	return c
}

// ownCommand returns the command that edits a file of allow or of block.
func ownCommand(allow bool) *cli.Command {
	word := ownWord(allow)
	return &cli.Command{
		Name:            word,
		ArgsUsage:       "HOST...",
		HideHelpCommand: true, // "help" is a host like any other
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "edit this `FILE`"},
			corefileFlag(), folderOfServer(),
			&cli.BoolFlag{Name: "remove", Usage: "remove the entries of the hosts"},
			&cli.BoolFlag{Name: "list", Usage: "print the entries"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			now := time.Now()
			e := &ownEdit{console: newConsole(c), Change: block.Change{Allow: allow, Remove: c.Bool("remove")}, now: now}
			err := e.misuse(c)
			if err == nil {
				e.Until, err = block.EndOf(c.String("for"), c.String("until"), now)
			}
			if err != nil {
				return err
			}
			if !c.IsSet("file") && !c.Bool("list") {
				asked := commandOf(c, word, c.Args().Slice()...)
				asked.For, asked.Until, asked.Remove = c.String("for"), c.String("until"), e.Remove
				err := asked.Run(ctx, c.Root().Writer)
				if _, down := errors.AsType[*control.NotRunningError](err); !down || c.IsSet("db") {
					return err
				}
			}
			if e.where, err = whereOf(c); err != nil {
				return err
			}
			if c.Bool("list") {
				return e.list()
			}
			return e.edit(ctx, c.Args().Slice())
		},
	}
}

func ownWord(allow bool) string {
	if allow {
		return "allow"
	}
	return "block"
}

// ownEdit is one run of allow or block.
type ownEdit struct {
	*console
	where
	block.Change
	now time.Time
}

func (e *ownEdit) misuse(c *cli.Command) error {
	word, timed := ownWord(e.Allow), c.IsSet("for") || c.IsSet("until")
	switch {
	case c.Bool("list") && (e.Remove || timed || c.NArg() > 0):
		return fmt.Errorf("%s -list takes no hosts, and only -file, -corefile and -json", word)
	case e.Remove && timed:
		return errors.New("-remove ends an exception now: leave out -for and -until")
	case !c.Bool("list") && c.NArg() == 0:
		return fmt.Errorf("%s takes hosts, see safebrowsing %s -h", word, word)
	}
	return nil
}

// edit adds or removes hosts. It changes nothing unless all of them are hosts.
func (e *ownEdit) edit(ctx context.Context, args []string) error {
	var changes []block.Change
	for _, arg := range args {
		h, err := block.EntryHost(arg)
		if err != nil {
			return err
		}
		e.Host = h
		changes = append(changes, e.Change)
	}
	file, err := e.pick(e.Allow)
	if err != nil {
		return err
	}
	all := make([]ownlist.Edited, len(changes))
	err = files.Edit(ctx, file.Path, func(text []byte) ([]byte, error) {
		for i, c := range changes {
			if all[i], err = c.Edit(text, file, e.now); err != nil {
				return nil, fmt.Errorf("%s: %w", file.Path, err)
			}
			text = all[i].Text
		}
		return text, nil
	})
	if err != nil {
		return err
	}
	for i, c := range changes {
		done := c.Of(file, all[i])
		if e.json {
			e.object(done)
		} else {
			e.err = cmp.Or(e.err, control.PrintChange(e.w, &done))
		}
	}
	return e.end(e.complainOfUse(file, changes))
}
