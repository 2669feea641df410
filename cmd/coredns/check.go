package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
)

// check reads the Corefile that the flags name, as a start would, and returns why it cannot be
// used. It starts nothing, so it cannot tell whether a port is free.
func check(out io.Writer) error {
	const dns = "dns"
	corefile, err := caddy.LoadCaddyfile(dns)
	if err != nil {
		return err
	}
	_, missing := os.Stat(caddy.DefaultConfigFile)
	if len(corefile.Body()) == 0 || missing != nil && corefile.Path() == caddy.DefaultConfigFile { // else it is one of CoreDNS's own, with whoami
		return errors.New("there is no Corefile")
	}
	if err := caddy.ValidateAndExecuteDirectives(corefile, nil, true); err != nil {
		return withTag(err, corefile)
	}
	fmt.Fprintf(out, "%s can be used\n", corefile.Path())
	return nil
}

// withTag returns the error with which plugin the Corefile has that only a build with a tag has,
// if there is one.
func withTag(err error, corefile caddy.Input) error {
	blocks, unreadable := caddyfile.Parse(corefile.Path(), bytes.NewReader(corefile.Body()), nil)
	if unreadable != nil {
		return err
	}
	have := directives()
	for _, b := range blocks {
		for word := range b.Tokens {
			if slices.Contains(order, word) && !slices.Contains(have, word) {
				return fmt.Errorf("%w: this program was built without %s: go build -tags cluster has all plugins that it can have", err, word)
			}
		}
	}
	return err
}
