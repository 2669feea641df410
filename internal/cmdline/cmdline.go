// Package cmdline is what the programs for operators share: how they run, and how they
// print.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// The exit statuses other than 0.
const (
	BadNews = 1 // a name is not safe, or the command found a problem
	Misuse  = 2 // the command could not do its work
)

// ErrBadNews ends a command that has printed all its findings: Run prints nothing more.
var ErrBadNews = errors.New("bad news")

// Run executes a command line and returns the exit status: 0, BadNews or Misuse. What it
// prints is masked: a key may be in the wrong place of a Corefile or of the command line.
func Run(ctx context.Context, root *cli.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	out, errOut = say.MaskedWriter{W: out}, say.MaskedWriter{W: errOut}
	root.Reader, root.Writer, root.ErrWriter = in, out, errOut
	// Run prints errors and returns the exit status; the library must not exit itself.
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	for _, c := range append([]*cli.Command{root}, root.Commands...) {
		c.OnUsageError = usageError
	}
	err := root.Run(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrBadNews):
		return BadNews
	}
	fmt.Fprintf(errOut, "%s: %v\n", root.Name, err)
	return Misuse
}

// usageError adds to an error of the library where the help is.
func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	text := err.Error()
	text = strings.ToLower(text[:1]) + text[1:]
	return fmt.Errorf("%s, see %s -h", text, c.FullName())
}
