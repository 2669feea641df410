// Command safebrowsing is the operator's command line beside the CoreDNS plugin
// of that name.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().Run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "safebrowsing:", err)
		os.Exit(misuse)
	}
}

// misuse is the exit status of a call that could not be carried out.
const misuse = 2

func command() *cli.Command {
	return &cli.Command{
		Name:                  "safebrowsing",
		Usage:                 "try and operate the safebrowsing plugin of CoreDNS",
		EnableShellCompletion: true,
		Commands:              []*cli.Command{testserver()},
	}
}
