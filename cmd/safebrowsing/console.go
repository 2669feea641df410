package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

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

// eachName calls f for each argument. For the argument "-" it calls f for the first word of
// each line of in, except for lines that begin with #. It returns an error of reading, or
// the error of ctx as soon as ctx ends.
func eachName(ctx context.Context, args []string, in io.Reader, f func(name string)) error {
	for _, arg := range args {
		if arg != "-" {
			f(arg)
		} else if err := eachLine(ctx, in, f); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// eachLine calls f for the first word of each line of in.
func eachLine(ctx context.Context, in io.Reader, f func(name string)) error {
	err := inBackground(ctx, func(give func(string) bool) error {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			fields := strings.Fields(strings.TrimPrefix(lines.Text(), "\uFEFF"))
			if len(fields) > 0 && !strings.HasPrefix(fields[0], "#") && !give(fields[0]) {
				return nil
			}
		}
		return lines.Err()
	}, func(name string) error {
		f(name)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("reading names from standard input: %w", err)
	}
	return err
}

// inBackground calls take for each value that read gives, until read ends, take returns an error or ctx
// ends. A read of a terminal or a pipe cannot be interrupted, so a goroutine reads: it ends with its
// input, or with the next value after ctx has ended. It is not waited for, since the process then exits.
func inBackground[T any](ctx context.Context, read func(give func(T) bool) error, take func(T) error) error {
	values, ended := make(chan T, 256), make(chan error, 1)
	go func() {
		ended <- read(func(v T) bool {
			select {
			case values <- v:
				return true
			case <-ctx.Done():
				return false
			}
		})
		close(values)
	}()
	for {
		select {
		case v, ok := <-values:
			if !ok {
				return <-ended
			}
			if err := take(v); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaited returns what read returns, or the error of a context that ends before, as by Ctrl-C.
func awaited[T any](ctx context.Context, read func() (T, error)) (got T, err error) {
	err = inBackground(ctx, func(give func(T) bool) error {
		v, err := read()
		give(v)
		return err
	}, func(v T) error {
		got = v
		return nil
	})
	return got, err
}
