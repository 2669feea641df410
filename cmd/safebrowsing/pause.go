package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const pauseHelp = `Lets every name pass for a while: a running CoreDNS blocks nothing, checks nothing
and asks no server. It begins within a second, ends by itself, and is in the log
and in the metric coredns_safebrowsing_paused. The own lists of the operator are
paused too. Without an argument the command prints the pauses that are in force.

A pause is for all server blocks of the Corefile, or with -block for those that
check a zone. It ends when CoreDNS is restarted, unless -keep is given; a reload
does not end it. The command writes a file into the folder of the lists: who may
write there may pause.

   safebrowsing pause 10m
   safebrowsing pause -corefile /etc/coredns/Corefile -block example.org 2h
   safebrowsing pause
   safebrowsing pause off`

func pauseCommand() *cli.Command {
	return &cli.Command{
		Name:            "pause",
		Usage:           "let every name pass for a while",
		ArgsUsage:       "[DURATION|off]",
		HideHelpCommand: true,
		Description:     pauseHelp,
		Flags: []cli.Flag{
			corefileFlag(),
			&cli.StringFlag{Name: "block", Usage: "pause only the server blocks that check this `ZONE`"},
			&cli.BoolFlag{Name: "keep", Usage: "go on after a restart of CoreDNS"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			p := &pausing{console: newConsole(c), now: time.Now(), keep: c.Bool("keep")}
			if err := p.read(c); err != nil {
				return err
			}
			return p.run(ctx)
		},
	}
}

// pausing is one run of the command pause.
type pausing struct {
	*console
	now     time.Time
	length  time.Duration // 0: end the pause
	show    bool          // only print the pauses
	keep    bool
	zone    string   // or pause.All
	folders []string // of the server blocks
}

// read reads the command line and the Corefile.
func (p *pausing) read(c *cli.Command) (err error) {
	switch arg := c.Args().First(); {
	case c.NArg() > 1:
		return errors.New("pause takes one duration such as 10m, or off, see safebrowsing pause -h")
	case c.NArg() == 0:
		p.show = true
	case arg == "off":
	default:
		if p.length, err = durationOf(arg, block.MaxPause); err != nil {
			return err
		}
	}
	if p.length == 0 && p.keep {
		return errors.New("-keep is for a pause: give its duration too")
	}
	corefile := corefileOf(c)
	if corefile == "" {
		return errors.New("there is no Corefile here: use -corefile")
	}
	blocks, err := protectedBlocks(corefile)
	if err != nil {
		return err
	}
	return p.pick(blocks, corefile, c.String("block"))
}

// pick finds the folders of the server blocks that check a zone, or of all.
func (p *pausing) pick(blocks []serverBlock, corefile, zone string) error {
	if p.zone = block.AllBlocks; zone != "" {
		p.zone = strings.TrimSuffix(strings.ToLower(zone), ".") + "."
	}
	var zones []string
	for _, b := range blocks {
		zones = append(zones, b.Config.Zones...)
		if p.zone != block.AllBlocks && !slices.Contains(b.Config.Zones, p.zone) {
			continue
		}
		folder := b.Config.PauseFolder()
		if folder == "" {
			return fmt.Errorf("%s: there is no folder for the pause: add db DIRECTORY", b.stanza())
		}
		if !slices.Contains(p.folders, folder) {
			p.folders = append(p.folders, folder)
		}
	}
	if len(p.folders) == 0 {
		slices.Sort(zones)
		return fmt.Errorf("no server block of %s checks the zone %s, only: %s", corefile, p.zone, strings.Join(slices.Compact(zones), ", "))
	}
	for _, folder := range p.folders {
		if _, err := os.Stat(folder); err != nil && !p.show {
			return fmt.Errorf("CoreDNS reads pauses from its folder of lists: %w; start CoreDNS first, and set $STATE_DIRECTORY here as there, or db in the Corefile", err)
		}
	}
	return nil
}

// run does what the command line says, in each folder.
func (p *pausing) run(ctx context.Context) error {
	for _, folder := range p.folders {
		now, err := p.inFolder(ctx, block.PauseFile(folder))
		if err != nil {
			return err
		}
		p.say(folder, now)
	}
	return p.end(false)
}

// inFolder changes the file of a folder, or only reads it. It returns the pauses in force.
func (p *pausing) inFolder(ctx context.Context, file string) (now []block.Pause, err error) {
	if p.show {
		if err := regularOrNone(file); err != nil { // to open a named pipe can block for ever
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all, err := block.ParsePauses(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return p.change(all), nil
	}
	err = editTarget(ctx, file, func(old []byte) ([]byte, error) {
		all, _ := block.ParsePauses(old) // a damaged file is written again
		if now = p.change(all); len(now)+len(old) == 0 {
			return nil, nil
		}
		return block.FormatPauses(now), nil
	})
	return now, err
}

// change returns the pauses that are in force from now on.
func (p *pausing) change(all []block.Pause) []block.Pause {
	ends := func(x block.Pause) bool { // pause off without -block ends all
		return !x.Active(p.now) || !p.show && (x.Zone == p.zone || p.zone == block.AllBlocks)
	}
	all = slices.DeleteFunc(all, ends)
	if p.length == 0 {
		return all
	}
	return append(all, block.Pause{Zone: p.zone, From: p.now.UTC(), Until: p.now.Add(p.length).UTC(), Keep: p.keep})
}

// paused is the JSON of a pause.
type paused struct {
	File  text   `json:"file"`
	Zone  text   `json:"zone"` // or "all"
	Until string `json:"until"`
	Keep  bool   `json:"keep"`
}

// say prints the pauses in force in a folder.
func (p *pausing) say(folder string, now []block.Pause) {
	if len(now) == 0 && !p.json {
		p.printf("Nothing is paused (%s)\n", say.Shown(block.PauseFile(folder)))
	}
	ends := func(x block.Pause) bool { return !x.Keep }
	if inUse, known := updater.InUse(folder); known && !inUse && slices.ContainsFunc(now, ends) {
		p.complain("CoreDNS is not running; when it starts it ends a pause that is without -keep")
	}
	for _, x := range now {
		if p.json {
			p.object(paused{text(block.PauseFile(folder)), text(x.Zone), say.Stamp(x.Until), x.Keep})
			continue
		}
		which, restart := "all server blocks", "or until CoreDNS is restarted"
		if x.Zone != block.AllBlocks {
			which = "the server blocks for " + say.Shown(x.Zone)
		}
		if x.Keep {
			restart = "also if CoreDNS is restarted"
		}
		p.printf("Paused until %s, %s: %s (%s)\n", say.Time(x.Until), restart, which, say.Shown(block.PauseFile(folder)))
	}
}
