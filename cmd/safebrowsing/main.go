// Command safebrowsing is the operator's command line for the CoreDNS plugin of that name.
// What is said about a running CoreDNS it asks that for, see internal/control.
//
//	status, why, blocked, lists, pause, resume, allow, block, unblock ──▶ the CoreDNS that runs
//	setup              ──▶ the configuration of a package
//	doctor             ──▶ why a configuration does not work
//	update             ──▶ the folder in which lists are kept
//	expressions        ──▶ what the plugin looks for
//	coverage           ──▶ how much of a feed of URLs DNS can stop
//	plan               ──▶ what a large network needs
//	import             ──▶ the configuration of another program
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
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func main() {
	log.SetFlags(0)
	log.SetOutput(&warnings{say.MaskedWriter{W: os.Stderr}})
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ends = append(ends, syscall.SIGHUP) // the terminal is gone: setup takes back what it has done
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	status := execute(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
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

// execute runs a command line and returns the exit status.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
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

const rootHelp = `Does the CoreDNS that runs here protect?

   sudo safebrowsing

Why is a name blocked? Let it pass for half an hour:

   sudo safebrowsing why example.com
   sudo safebrowsing allow -for 30m example.com

Does this configuration work?

   sudo safebrowsing doctor

Each command has examples: safebrowsing COMMAND -h. With -json, all commands
except completion and setup print one JSON value per line. The exit status is 0
for good news, 1 for bad news such as a name that is blocked, a problem, or a
CoreDNS that does not run, and 2 if the command could not do its work. The commands
read an API key only where CoreDNS does: in the Corefile, its key file, the credential
beside it and $SAFEBROWSING_API_KEY.

This line lets bash complete commands and flags:

   source <(safebrowsing completion bash)

safebrowsing completion -h has the lines for zsh and fish.`

func command() *cli.Command {
	return &cli.Command{
		Name:        "safebrowsing",
		Usage:       "try and operate the safebrowsing plugin of CoreDNS",
		Description: rootHelp,
		Commands: []*cli.Command{statusCommand(), whyCommand(), blockedCommand(), allowCommand(), blockCommand(), unblockCommand(), pauseCommand(), resumeCommand(), listsCommand(), setup(), validate(), doctor(), expressions(), plan(), importCommand(), coverageCommand(), update(), versionCommand(), completion(), complete(),
			gone("relay", "the relay is a program of its own: run safebrowsing-relay with the same flags. It reads no Corefile: what -corefile said are its flags, see safebrowsing-relay -h"),
			gone("testserver", "testserver is a program of its own, for those who have the sources: there, go run ./test/server -h"),
			helpCommand()},
		Flags: []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", Local: true}},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return printVersion(newConsole(c))
			}
			if c.NArg() > 0 {
				return unknownCommand(c, c.Args().First())
			}
			asked := commandOf(c, "status")
			asked.Short = true
			return asked.Run(ctx, c.Root().Writer)
		},
	}
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Aliases:   []string{"h"},
		Usage:     "print this help, or a command's",
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

// gone says where a command is that earlier versions had.
func gone(name, where string) *cli.Command {
	return &cli.Command{
		Name: name, Hidden: true, HideHelp: true, SkipFlagParsing: true,
		Action: func(context.Context, *cli.Command) error { return errors.New(where) },
	}
}

// jsonFlag returns the flag of all commands with findings.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON value per line"}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program, of CoreDNS and of Go",
		Description: `Prints the versions that this program was built from. It prints the git revision
if it was built in a git checkout; "modified" means that files had been changed.

   safebrowsing version
   safebrowsing version -json | jq -r .coredns`,
		Flags: []cli.Flag{jsonFlag()},
		Action: func(_ context.Context, c *cli.Command) error {
			if err := alone(c, nil); err != nil {
				return err
			}
			return printVersion(newConsole(c))
		},
	}
}

// build says from which versions the program was built, in JSON.
type build struct {
	Version  string `json:"version"`
	CoreDNS  string `json:"coredns"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Revision string `json:"revision"` // of git; "": not built in a checkout
	Modified bool   `json:"modified"` // files differed from the revision
}

func printVersion(out *console) error {
	info, _ := debug.ReadBuildInfo()
	b := buildOf(info)
	if out.json {
		out.object(b)
	} else {
		out.printf("%s\n", b)
	}
	return out.end(false)
}

// buildOf returns the build from the information that Go embeds in a program. info may be
// nil.
func buildOf(info *debug.BuildInfo) build {
	b := build{Version: say.Version, CoreDNS: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	for _, m := range info.Deps {
		if m.Path != "github.com/coredns/coredns" {
			continue
		}
		if m.Replace != nil && m.Replace.Version != "" {
			m = m.Replace
		}
		b.CoreDNS = strings.TrimPrefix(m.Version, "v")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build in one line.
func (b build) String() string {
	line := fmt.Sprintf("safebrowsing %s, CoreDNS %s, %s %s", b.Version, b.CoreDNS, b.Go, b.Platform)
	if b.Revision != "" {
		line += ", revision " + b.Revision
	}
	if b.Modified {
		line += " (modified)"
	}
	return line
}
