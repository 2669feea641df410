package control

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

const usage = `Ask the CoreDNS that runs here:

   %[1]s status             does it protect, and by what
   %[1]s why NAME           is a name blocked, and why [-confirm: ask the service]
   %[1]s blocked            what was blocked in the last hour
   %[1]s lists              the lists, and when they were fetched
   %[1]s pause 10m          let every name pass for a while
   %[1]s resume             end that
   %[1]s allow NAME         let a name pass [-for 1h, -until 18:00, -remove]
   %[1]s block NAME         block a name
   %[1]s unblock NAME       take that back

With -json the answer is JSON. Each command takes -db FOLDER, if the server has its lists in
another folder than usual. The exit status is 0 for good news and 1 for bad news.
`

// IsCommand reports whether the first argument of a program is a word of this package.
func IsCommand(args []string) bool {
	return len(args) > 1 && (args[1] == "help" || slices.Contains(Words, args[1]))
}

// Main runs the command line of a program that has no other commands, and returns its exit status.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	out, errOut = say.MaskedWriter{W: out}, say.MaskedWriter{W: errOut}
	tool := args[0][strings.LastIndexByte(args[0], '/')+1:]
	c, err := parse(tool, args[1:])
	if err == nil && c == nil {
		fmt.Fprintf(out, usage, tool)
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	if err == nil {
		err = c.Run(ctx, out)
	}
	return say.Exit(errOut, tool, err)
}

// parse reads a command line, whose flags may stand anywhere. It returns nil for a help.
func parse(tool string, args []string) (*Command, error) {
	c := &Command{Word: args[0], Tool: tool, Folders: block.Folders()}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	folder := f.String("db", "", "")
	f.BoolVar(&c.JSON, "json", false, "")
	switch c.Word {
	case "why":
		f.BoolVar(&c.Confirm, "confirm", false, "")
	case "allow":
		f.StringVar(&c.For, "for", "", "")
		f.StringVar(&c.Until, "until", "", "")
		f.BoolVar(&c.Remove, "remove", false, "")
	case "block":
		f.BoolVar(&c.Remove, "remove", false, "")
	case "pause", "resume":
		f.StringVar(&c.Zone, "block", "", "")
		f.BoolVar(&c.Keep, "keep", false, "")
	case "help":
		return nil, nil
	}
	for rest := args[1:]; len(rest) > 0; {
		err := f.Parse(rest)
		if errors.Is(err, flag.ErrHelp) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w, see %s help", err, tool)
		}
		if rest = f.Args(); len(rest) > 0 {
			c.Names, rest = append(c.Names, rest[0]), rest[1:]
		}
	}
	if *folder != "" {
		c.Folders = block.Beside(*folder)
	}
	return c, nil
}
