// Command safebrowsing is the operator's command line for the CoreDNS plugin of that name.
// It reads the same Corefile and the same folder of lists as the plugin.
//
//	check, expressions ──▶ what the plugin decides, and what it looks for
//	allow, block       ──▶ the operator's own lists
//	lists, update      ──▶ the folder in which lists are kept
//	pause              ──▶ a file in that folder, at which a running plugin looks
//	status             ──▶ what protects, since when, and what is next
//	doctor             ──▶ why a configuration does not work
//	relay              ──▶ one client of Google for many CoreDNS servers
//	testserver         ──▶ lists of your own, served like Google's
//	version, completion ──▶ for bug reports, and for your shell
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/mask"
)

func main() {
	log.SetFlags(0)
	log.SetOutput(&warnings{os.Stderr})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// warnings drops the plugin's INFO and DEBUG log lines.
type warnings struct{ w io.Writer }

// Write implements io.Writer. The log package calls it once for each line.
func (l *warnings) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("[INFO] ")) || bytes.HasPrefix(line, []byte("[DEBUG] ")) {
		return len(line), nil
	}
	return l.w.Write(line)
}

// The exit statuses other than 0.
const (
	badNews = 1 // a name is not safe, or the command found a problem
	misuse  = 2 // the command could not do its work
)

// errBadNews ends a command that has printed all its findings: run prints nothing more.
var errBadNews = errors.New("bad news")

// run executes a command line and returns the exit status. What it prints is masked: a key
// may be in the wrong place of a Corefile or of the command line.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	out, errOut = mask.Writer{W: out}, mask.Writer{W: errOut}
	c := command()
	c.Reader, c.Writer, c.ErrWriter = in, out, errOut
	err := c.Run(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errBadNews):
		return badNews
	}
	fmt.Fprintln(errOut, "safebrowsing:", err)
	return misuse
}

const rootHelp = `Would a name be blocked, and why?

   safebrowsing check -corefile /etc/coredns/Corefile example.com

Let a name pass for half an hour:

   safebrowsing allow -corefile /etc/coredns/Corefile -for 30m example.com

Does this configuration work?

   safebrowsing doctor -corefile /etc/coredns/Corefile

Each command has examples: safebrowsing COMMAND -h. With -json, all commands
except relay, testserver and completion print one JSON object per line. The exit status
is 0 for good news, 1 for bad news such as an unsafe name or a problem, and 2 if
the command could not do its work. The commands read an API key only from the
Corefile and from $SAFEBROWSING_API_KEY.

This line lets bash complete commands and flags:

   source <(safebrowsing completion bash)

safebrowsing completion -h has the lines for zsh and fish.`

func command() *cli.Command {
	root := &cli.Command{
		Name:        "safebrowsing",
		Usage:       "try and operate the safebrowsing plugin of CoreDNS",
		Description: rootHelp,
		Commands:    []*cli.Command{check(), allowCommand(), blockCommand(), pauseCommand(), expressions(), lists(), update(), statusCommand(), doctor(), relayCommand(), testserver(), versionCommand(), completion(), complete()},
		// run prints errors and sets the exit status; the library must not exit itself.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Flags:          []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", Local: true}},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return printVersion(newConsole(c))
			}
			if c.NArg() > 0 {
				return fmt.Errorf("there is no command %q, see safebrowsing -h", c.Args().First())
			}
			cli.ShowRootCommandHelp(c)
			return errors.New("no command given")
		},
	}
	for _, c := range append([]*cli.Command{root}, root.Commands...) {
		c.OnUsageError = usageError
	}
	return root
}

// usageError adds to an error of the library where the help is.
func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	text := err.Error()
	text = strings.ToLower(text[:1]) + text[1:]
	return fmt.Errorf("%s, see %s -h", text, c.FullName())
}

// jsonFlag returns the flag of all commands with findings.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object per line"}
}
