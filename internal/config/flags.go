package config

import (
	"errors"
	"regexp"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// stanzaFlags are the flags of commands that have the meaning of a property of the Corefile,
// which has the same name with an underscore. Their arguments are separated by commas.
var stanzaFlags = []string{"api-key-file", "token-file", "endpoint", "protocol", "lists", "max-entries", "budget", "resolver", "cache"}

// Flags are those of a command. Flags that it does not have are not set.
type Flags interface {
	IsSet(name string) bool
	String(name string) string
	Bool(name string) bool
}

// ParseFlags makes the parser of the Corefile read the flags of a command, so that both allow
// the same. folder is "off" for none.
func ParseFlags(flags Flags, folder string) (Config, error) {
	secured, err := TLSLine(flags.String("endpoint-cert"), flags.String("endpoint-ca"))
	if err != nil {
		return Config{}, err
	}
	lines := [][]string{{say.Plugin, "{"}, {"db", folder}, secured}
	for _, flag := range stanzaFlags {
		if flags.IsSet(flag) {
			lines = append(lines, append([]string{strings.ReplaceAll(flag, "-", "_")}, strings.Split(flags.String(flag), ",")...))
		}
	}
	if flags.Bool("realtime") {
		lines = append(lines, []string{"mode", "realtime"})
	}
	var tokens []caddyfile.Token
	for i, line := range append(lines, []string{"}"}) {
		for _, word := range line {
			tokens = append(tokens, caddyfile.Token{File: "flags", Line: i + 1, Text: word})
		}
	}
	controller := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("flags", tokens), ServerBlockKeys: []string{"."}}
	cfg, err := Parse(controller, "")
	if err != nil {
		return Config{}, asFlags(err)
	}
	cfg.flags = true
	for i, warning := range cfg.Warnings {
		cfg.Warnings[i] = asFlags(errors.New(warning)).Error()
	}
	return cfg, nil
}

var stanzaPlace = regexp.MustCompile(`^(flags:\d+:? *(- )?)?(Error during parsing: )?`)

// asFlags takes the place in the stanza out of a text of the parser: there is no file that
// the operator could open.
func asFlags(err error) error {
	return errors.New(stanzaPlace.ReplaceAllString(err.Error(), ""))
}
