package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
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
		Flags: askFlags(
			&cli.StringFlag{Name: "file", Usage: "edit this `FILE`"},
			&cli.BoolFlag{Name: "remove", Usage: "remove the entries of the hosts"},
			&cli.BoolFlag{Name: "list", Usage: "print the entries"}),
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
	case c.Bool("list") && (e.Remove || timed || c.NArg() > 0 || c.IsSet("db")):
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

// protectedBlocks returns the server blocks of a Corefile that have the plugin. It opens no lists.
func protectedBlocks(path string) ([]serverBlock, error) {
	all, err := parseCorefile(path)
	return ours(all), err
}

// where says which files a command may edit.
type where struct {
	file     string        // of -file; "": the first one of the Corefile
	corefile string        // "": there is none
	blocks   []serverBlock // that have the plugin
}

func whereOf(c *cli.Command) (w where, err error) {
	w = where{file: c.String("file"), corefile: corefileOf(c)}
	if w.corefile == "" {
		if w.file == "" {
			return w, errors.New("there is no Corefile here: use -corefile, or -file for the file to edit")
		}
		return w, nil
	}
	w.blocks, err = protectedBlocks(w.corefile)
	return w, err
}

// files returns the distinct lists of allow and of block that the Corefile names, in its order, and those that the
// server has of its own, which may not exist.
func (w where) files() (named, own []ownlist.Config) {
	add := func(all, more []ownlist.Config) []ownlist.Config {
		for _, f := range more {
			if !slices.ContainsFunc(all, func(c ownlist.Config) bool { return c.Path == f.Path && c.Allow == f.Allow }) {
				all = append(all, f)
			}
		}
		return all
	}
	for _, b := range w.blocks {
		named, own = add(named, slices.Concat(b.Files(true), b.Files(false))), add(own, b.ServerLists())
	}
	return named, own
}

// pick returns the file to edit.
func (w where) pick(allow bool) (ownlist.Config, error) {
	word, other := ownWord(allow), ownWord(!allow)
	named, own := w.files()
	if w.file == "" {
		if i := slices.IndexFunc(named, func(f ownlist.Config) bool { return f.Allow == allow }); i >= 0 {
			return named[i], nil
		}
		return ownlist.Config{}, fmt.Errorf("%s has no file of %s: add the line \"%s /etc/coredns/%s.txt\" to the braces of %s at %s, create that file, and restart CoreDNS",
			w.corefile, word, word, word, say.Plugin, w.blocks[0].stanza())
	}
	for _, f := range append(named, own...) {
		switch {
		case !config.SameFile(f.Path, w.file):
		case f.Allow == allow:
			return f, nil
		default:
			return f, fmt.Errorf("%s is a file of %s in %s: use safebrowsing %s, or another file", w.file, other, w.corefile, other)
		}
	}
	if dir := filepath.Dir(w.file); !exists(dir) {
		return ownlist.Config{}, fmt.Errorf("there is no folder %s", dir)
	}
	return ownlist.Config{Path: w.file, Allow: allow}, nil
}

// complainOfUse prints which server blocks do not use a file, and for which hosts an edit of
// it does not do what the user wants. It reports whether there is such a host.
func (e *ownEdit) complainOfUse(file ownlist.Config, changes []block.Change) (bad bool) {
	if e.corefile == "" {
		e.complain("there is no Corefile here, so it is not known whether CoreDNS reads %s: use -corefile", file.Path)
		return false
	}
	var without []string
	for _, b := range e.blocks {
		if !b.reads(file) {
			without = append(without, b.stanza())
			continue
		}
		for _, c := range changes {
			host := c.Host.String() + "."
			if !b.InScope(host) && slices.ContainsFunc(e.blocks, func(other serverBlock) bool { return other.reads(file) && other.InScope(host) }) {
				continue // the other one checks it
			}
			if why := b.otherwise(c); why != "" {
				e.complain("%s: %s", b.stanza(), why)
				bad = true
			}
		}
	}
	switch {
	case len(without) == len(e.blocks):
		e.complain("CoreDNS does not read %s: no server block of %s has the line \"%s %s\"", file.Path, e.corefile, ownWord(e.Allow), file.Path)
		return true
	case len(without) > 0:
		e.complain("%s is not read by the server %s at %s", file.Path, say.Plural(len(without), "block", "blocks"), strings.Join(without, ", "))
	}
	return bad
}

// reads reports whether the server block reads a file, by a line of its stanza or as a list of the server's own.
func (b *serverBlock) reads(file ownlist.Config) bool {
	return b.Reads(file.Path, file.Allow) || slices.ContainsFunc(b.ServerLists(), func(f ownlist.Config) bool {
		return f.Allow == file.Allow && config.SameFile(f.Path, file.Path)
	})
}

// otherwise says why the server block does not do what a change asks for; "" if it does.
func (b *serverBlock) otherwise(c block.Change) string {
	if !b.InScope(c.Host.String()+".") && !c.Remove {
		return fmt.Sprintf("%s is not checked: it is in no zone of this server block, or in one of its exceptions", c.Host)
	}
	now := block.New(b.Config) // with the own lists as they are after the edit
	if now.ReadOwn() != nil {
		return "" // CoreDNS will say so
	}
	defer now.End()
	return now.Otherwise(c)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// ownListed is the JSON of one entry.
type ownListed struct {
	File  text   `json:"file"`
	Line  int    `json:"line"`
	Entry text   `json:"entry"`
	Until string `json:"until"` // "": for ever
	Ended bool   `json:"ended"`
}

// list prints the entries of the file of -file, or of all files of the Corefile and the server.
func (e *ownEdit) list() error {
	all, own := e.files()
	all = append(all, slices.DeleteFunc(own, func(f ownlist.Config) bool { return !exists(f.Path) })...)
	all = slices.DeleteFunc(all, func(f ownlist.Config) bool { return f.Allow != e.Allow })
	if e.file != "" || len(all) == 0 {
		file, err := e.pick(e.Allow)
		if err != nil {
			return err
		}
		all = []ownlist.Config{file}
	}
	for _, file := range all {
		if err := files.Check(file.Path); err != nil {
			return err
		}
		content, err := os.ReadFile(file.Path)
		if err != nil {
			return err
		}
		entries, err := ownlist.Entries(content, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
		for _, x := range entries {
			e.listOne(file.Path, x)
		}
	}
	return e.end(false)
}

func (e *ownEdit) listOne(path string, x ownlist.Listed) {
	ended := !x.Until.IsZero() && !e.now.Before(x.Until)
	if e.json {
		e.object(ownListed{text(path), x.Line, text(x.Text), say.Stamp(x.Until), ended})
		return
	}
	note := ""
	switch {
	case ended:
		note = "   (ended)"
	case !x.Until.IsZero():
		note = fmt.Sprintf("   (ends in %v)", x.Until.Sub(e.now).Round(time.Second))
	}
	e.printf("%s:%d: %s%s\n", say.Shown(path), x.Line, say.Shown(x.Text), note)
}
