package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// serverBlock is a server block of a Corefile.
type serverBlock struct {
	*block.Block // as CoreDNS would decide; nil: the block does not have the plugin
	config.Listening
	file   string // the Corefile
	hidden string // warning that no client gets to the view; "": none
	read   caddyfile.ServerBlock
}

// readCorefile returns all server blocks of a Corefile, and reads what CoreDNS has saved for
// those that have the plugin. The caller must close the blocks with closeBlocks.
func readCorefile(path string) ([]serverBlock, error) {
	all, err := parseCorefile(path)
	if err != nil {
		return nil, err
	}
	for i, b := range ours(all) {
		if err := b.Read(); err != nil {
			closeBlocks(ours(all)[:i])
			return nil, err
		}
	}
	return all, nil
}

// ours returns the server blocks that have the plugin.
func ours(all []serverBlock) []serverBlock {
	return slices.DeleteFunc(slices.Clone(all), func(b serverBlock) bool { return b.Block == nil })
}

// parseCorefile returns all server blocks of a Corefile, and opens no list. It is an error if
// none has the plugin.
func parseCorefile(path string) (all []serverBlock, err error) {
	raw, err := os.ReadFile(path) // the parser takes an error of reading for the end
	if err != nil {
		return nil, err
	}
	blocks, err := caddyfile.Parse(path, bytes.NewReader(raw), nil)
	if err != nil {
		return nil, err
	}
	var with []*block.Block
	for i, b := range blocks {
		server := serverBlock{Listening: config.ListeningOf(b), file: path, hidden: config.HiddenView(path, blocks, i), read: b}
		if _, has := b.Tokens[say.Plugin]; has {
			cfg, err := stanzaOf(path, b)
			if err != nil {
				return nil, err
			}
			server.Block = block.New(cfg)
			if err := server.Validate(); err != nil {
				return nil, err
			}
			with = append(with, server.Block)
		}
		all = append(all, server)
	}
	if len(with) == 0 {
		return nil, fmt.Errorf("%s: no server block has %s", path, say.Plugin)
	}
	needed := block.NeededBy(with, config.ForwardTargets(blocks))
	for _, b := range with {
		b.Need(needed)
	}
	return all, nil
}

// stanzaOf reads the plugin's stanza in a server block.
func stanzaOf(path string, b caddyfile.ServerBlock) (config.Config, error) {
	root := ""
	if tokens := b.Tokens["root"]; len(tokens) == 2 {
		root = tokens[1].Text
	}
	return config.Parse(&caddy.Controller{Dispenser: caddyfile.NewDispenserTokens(path, b.Tokens[say.Plugin]), ServerBlockKeys: b.Keys}, root)
}

// closeBlocks closes the plugins of server blocks.
func closeBlocks(blocks []serverBlock) {
	for _, b := range ours(blocks) {
		b.End()
	}
}

// enginesOf returns one server block for each distinct engine: the first one.
func enginesOf(blocks []serverBlock) (all []serverBlock) {
	for _, b := range ours(blocks) {
		if !slices.ContainsFunc(all, func(other serverBlock) bool { return other.Settings == b.Settings }) {
			all = append(all, b)
		}
	}
	return all
}

// named returns the stanzas of server blocks and their folders, for an error.
func named(blocks []serverBlock) string {
	var all []string
	for _, b := range blocks {
		all = append(all, fmt.Sprintf("%s (db %s)", b.stanza(), cmp.Or(b.Config.DB, "off")))
	}
	return strings.Join(all, " and ")
}

// warningsOf returns the warnings about a Corefile. It removes duplicates, because several
// server blocks may import the same lines.
func warningsOf(blocks []serverBlock) (all []string) {
	for _, b := range ours(blocks) {
		for _, warning := range slices.Concat(b.Config.Warnings, []string{b.hidden}) {
			if warning != "" && !slices.Contains(all, warning) {
				all = append(all, warning)
			}
		}
	}
	return all
}

// stanza returns where the plugin's stanza begins, as file:line, or "".
func (b *serverBlock) stanza() string {
	tokens := b.read.Tokens[say.Plugin]
	if len(tokens) == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", cmp.Or(tokens[0].File, b.file), tokens[0].Line)
}
