package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// stanzaFlags are the flags that have the meaning of a property of the Corefile, which has
// the same name with an underscore. Their arguments are separated by commas.
var stanzaFlags = []string{"api-key-file", "token-file", "endpoint", "endpoint-ca", "endpoint-cert", "protocol", "lists", "max-entries", "budget", "resolver"}

// propertyOf returns the property that a flag stands for.
func propertyOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// parseFlags makes the parser of the Corefile read the flags of a command, so that both allow
// the same. folder is "off" for none.
func parseFlags(c *cli.Command, folder string) (config.Config, error) {
	var tokens []caddyfile.Token
	for i, line := range stanzaLines(c, folder) {
		for _, word := range line {
			tokens = append(tokens, caddyfile.Token{File: "flags", Line: i + 1, Text: word})
		}
	}
	controller := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("flags", tokens), ServerBlockKeys: []string{"."}}
	cfg, err := config.Parse(controller, "")
	if err != nil {
		return config.Config{}, asFlags(err)
	}
	for i, warning := range cfg.Warnings {
		cfg.Warnings[i] = asFlags(errors.New(warning)).Error()
	}
	return cfg, nil
}

// stanzaLines returns the stanza that says the same as the flags.
func stanzaLines(c *cli.Command, folder string) [][]string {
	lines := [][]string{{config.Plugin, "{"}, {"db", folder}}
	for _, flag := range stanzaFlags {
		if c.IsSet(flag) {
			lines = append(lines, append([]string{propertyOf(flag)}, strings.Split(c.String(flag), ",")...))
		}
	}
	if c.Bool("realtime") {
		lines = append(lines, []string{"mode", "realtime"})
	}
	return append(lines, []string{"}"})
}

var stanzaPlace = regexp.MustCompile(`^(flags:\d+:? *(- )?)?(Error during parsing: )?`)

// asFlags takes the place in the stanza out of a text of the parser: there is no file that
// the operator could open.
func asFlags(err error) error {
	return errors.New(stanzaPlace.ReplaceAllString(err.Error(), ""))
}
