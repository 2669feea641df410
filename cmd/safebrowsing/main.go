// Command safebrowsing is the operator's command line for the CoreDNS plugin of that name.
// It reads the same Corefile and the same folder of lists as the plugin.
//
//	check, expressions ──▶ what the plugin decides, and what it looks for
//	allow, block       ──▶ the operator's own lists
//	lists, update      ──▶ the folder in which lists are kept
//	pause              ──▶ a file in that folder, at which a running plugin looks
//	status             ──▶ what protects, since when, and what is next
//	doctor             ──▶ why a configuration does not work
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
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
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

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := command()
	// A key may be in the wrong place of a Corefile or of the command line.
	root.Reader, root.Writer, root.ErrWriter = in, say.MaskedWriter{W: out}, say.MaskedWriter{W: errOut}
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // else the library exits
	for _, c := range append([]*cli.Command{root}, root.Commands...) {
		c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
			return say.UsageError(c.FullName(), err)
		}
	}
	return say.Exit(root.ErrWriter, root.Name, root.Run(ctx, args))
}

const rootHelp = `Would a name be blocked, and why?

   safebrowsing check -corefile /etc/coredns/Corefile example.com

Let a name pass for half an hour:

   safebrowsing allow -corefile /etc/coredns/Corefile -for 30m example.com

Does this configuration work?

   safebrowsing doctor -corefile /etc/coredns/Corefile

Each command has examples: safebrowsing COMMAND -h. With -json, all commands
except completion print one JSON object per line. The exit status
is 0 for good news, 1 for bad news such as an unsafe name or a problem, and 2 if
the command could not do its work. The commands read an API key only from the
Corefile and from $SAFEBROWSING_API_KEY.

This line lets bash complete commands and flags:

   source <(safebrowsing completion bash)

safebrowsing completion -h has the lines for zsh and fish.`

func command() *cli.Command {
	return &cli.Command{
		Name:        "safebrowsing",
		Usage:       "try and operate the safebrowsing plugin of CoreDNS",
		Description: rootHelp,
		Commands:    []*cli.Command{check(), allowCommand(), blockCommand(), pauseCommand(), expressions(), lists(), update(), statusCommand(), doctor(), versionCommand(), completion(), complete(), relay(), testserver(), helpCommand()},
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", Local: true}},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return printVersion(newConsole(c))
			}
			if c.NArg() > 0 {
				return unknownCommand(c, c.Args().First())
			}
			cli.ShowRootCommandHelp(c)
			return errors.New("no command given")
		},
	}
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Aliases:   []string{"h"},
		Usage:     "print this help, or that of a command",
		ArgsUsage: "[COMMAND]",
		Action: func(ctx context.Context, c *cli.Command) error {
			root, name := c.Root(), c.Args().First()
			switch {
			case c.NArg() > 1:
				return errors.New("help takes the name of one command, see safebrowsing -h")
			case name == "":
				return cli.ShowRootCommandHelp(root)
			case root.Command(name) == nil:
				return unknownCommand(root, name)
			}
			return cli.ShowCommandHelp(ctx, root, name)
		},
	}
}

// unknownCommand says that there is no command of a name, and which one may be meant.
func unknownCommand(root *cli.Command, name string) error {
	var known []string
	for _, c := range root.VisibleCommands() {
		known = append(known, c.Name)
	}
	if near, edits := say.Nearest(name, known); edits <= 2 && 2*edits < len(name) {
		return fmt.Errorf("there is no command %q: did you mean %s? See safebrowsing -h", name, near)
	}
	return fmt.Errorf("there is no command %q, see safebrowsing -h", name)
}

// relay says where the server has gone that earlier versions had.
func relay() *cli.Command {
	return &cli.Command{
		Name: "relay", Hidden: true, HideHelp: true, SkipFlagParsing: true,
		Action: func(context.Context, *cli.Command) error {
			return errors.New("the relay is a program of its own: run safebrowsing-relay with the same flags. It reads no Corefile: what -corefile said are its flags, see safebrowsing-relay -h")
		},
	}
}

// testserver says where the server has gone that earlier versions had.
func testserver() *cli.Command {
	return &cli.Command{
		Name: "testserver", Hidden: true, HideHelp: true, SkipFlagParsing: true,
		Action: func(context.Context, *cli.Command) error {
			return errors.New("testserver is a program of its own, for those who have the sources: there, go run ./test/server -h")
		},
	}
}

// jsonFlag returns the flag of all commands with findings.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object per line"}
}
