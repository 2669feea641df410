package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// console prints the findings of a command.
type console struct {
	w, errOut io.Writer
	json      bool  // print findings as JSON
	err       error // the first error of writing to w; nothing is printed after it
}

func newConsole(c *cli.Command) *console {
	return &console{w: c.Root().Writer, errOut: c.Root().ErrWriter, json: c.Bool("json")}
}

// object prints one line of JSON.
func (o *console) object(v any) {
	if o.err != nil {
		return
	}
	e := json.NewEncoder(o.w)
	e.SetEscapeHTML(false)
	o.err = e.Encode(v)
}

// printf prints text. Text that others wrote must go through shown first.
func (o *console) printf(format string, args ...any) {
	if o.err == nil {
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

// complain prints one line to standard error, so that it is not among the findings.
func (o *console) complain(format string, args ...any) {
	fmt.Fprintln(o.errOut, "safebrowsing:", say.Shown(fmt.Sprintf(format, args...)))
}

// end returns the error with which a command ends after its last finding.
func (o *console) end(bad bool) error {
	if o.err != nil {
		return fmt.Errorf("printing: %w", o.err)
	}
	if bad {
		return say.ErrBadNews
	}
	return nil
}

// text is a string in JSON that may hold any bytes.
type text = say.Text
