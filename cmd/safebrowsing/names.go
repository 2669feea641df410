package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

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

// eachLine calls f for the first word of each line of in. A goroutine reads, because a read
// cannot be interrupted. It ends at the end of in, or with the next line after ctx has
// ended; eachLine does not wait for it, since the process then exits.
func eachLine(ctx context.Context, in io.Reader, f func(name string)) error {
	names, ended := make(chan string), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			fields := strings.Fields(strings.TrimPrefix(lines.Text(), "\uFEFF"))
			if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
				continue
			}
			select {
			case names <- fields[0]:
			case <-ctx.Done():
				return
			}
		}
		ended <- lines.Err()
	}()
	for {
		select {
		case name := <-names:
			f(name)
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("reading names from standard input: %w", err)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
