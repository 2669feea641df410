package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// serverBlock is a server block of a Corefile.
type serverBlock struct {
	*Offline // the plugin; nil: the block does not have it
	config.Listening
	file   string // the Corefile
	number int    // position of the block in the Corefile, from 1; 0: made for a folder
	view   view
	hidden string            // warning that no client gets to the view; "": none
	tokens []caddyfile.Token // of the plugin's stanza
}

// readCorefile returns all server blocks of a Corefile. It is an error if none has the
// plugin. The caller must close the blocks with closeBlocks.
func readCorefile(path string) (all []serverBlock, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	blocks, err := caddyfile.Parse(path, f, nil)
	if err != nil {
		return nil, err
	}
	found, cfgs := false, []*config.Config(nil)
	for i, b := range blocks {
		block := serverBlock{
			Listening: config.ListeningOf(b), file: path, number: i + 1,
			view: viewOf(b.Tokens["view"]), hidden: config.HiddenView(path, blocks, i), tokens: b.Tokens[config.Plugin],
		}
		if _, has := b.Tokens[config.Plugin]; has {
			if block.Offline, err = offlineOf(path, b); err != nil {
				closeBlocks(all)
				return nil, err
			}
			found, cfgs = true, append(cfgs, &block.cfg)
		}
		all = append(all, block)
	}
	if !found {
		return nil, fmt.Errorf("%s: no server block has %s", path, config.Plugin)
	}
	needed := config.NeededBy(cfgs, config.ForwardTargets(blocks))
	for _, b := range all {
		if b.Offline != nil {
			b.policy.Need(needed)
		}
	}
	return all, nil
}

// offlineOf returns the plugin of a server block that has it.
func offlineOf(path string, b caddyfile.ServerBlock) (*Offline, error) {
	cfg, err := configOf(path, b)
	if err != nil {
		return nil, err
	}
	return newOffline(cfg)
}

// configOf reads the plugin's stanza in a server block.
func configOf(path string, b caddyfile.ServerBlock) (config.Config, error) {
	c := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens(path, b.Tokens[config.Plugin]), ServerBlockKeys: b.Keys}
	return config.Parse(c, rootOf(b))
}

// closeBlocks closes the plugins of server blocks.
func closeBlocks(blocks []serverBlock) {
	for _, b := range blocks {
		if b.Offline != nil {
			b.Close()
		}
	}
}

// enginesOf returns one server block for each distinct engine: the first one.
func enginesOf(blocks []serverBlock) (all []serverBlock) {
	seen := make(map[config.Settings]bool)
	for _, b := range blocks {
		if b.Offline == nil {
			continue
		}
		if s := b.Settings(); !seen[s] {
			seen[s] = true
			all = append(all, b)
		}
	}
	return all
}

// named returns the stanzas of server blocks and their folders, for an error.
func named(blocks []serverBlock) string {
	var all []string
	for _, b := range blocks {
		all = append(all, fmt.Sprintf("%s (db %s)", b.stanza(), cmp.Or(b.Folder(), "off")))
	}
	return strings.Join(all, " and ")
}

// warningsOf returns the warnings about a Corefile. It removes duplicates, because several
// server blocks may import the same lines.
func warningsOf(blocks []serverBlock) (all []string) {
	for _, b := range blocks {
		if b.Offline == nil {
			continue
		}
		for _, warning := range slices.Concat(b.Warnings(), []string{b.hidden}) {
			if warning != "" && !slices.Contains(all, warning) {
				all = append(all, warning)
			}
		}
	}
	return all
}

// stanza returns where the plugin's stanza begins, as file:line, or "".
func (b *serverBlock) stanza() string {
	if len(b.tokens) == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d", cmp.Or(b.tokens[0].File, b.file), b.tokens[0].Line)
}

// propertiesOf returns the words that begin the lines of a stanza, without its first line.
func propertiesOf(tokens []caddyfile.Token) (all []string) {
	for i := 1; i < len(tokens); i++ {
		t, before := tokens[i], tokens[i-1]
		if (t.File != before.File || t.Line != before.Line) && t.Text != "}" {
			all = append(all, t.Text)
		}
	}
	return all
}

// answering returns the block with the plugin that answers for a name, or nil: the block
// with the longest zone that holds the name. A block does not count if at the same port
// another block answers in its place, see outdone.
func answering(blocks []serverBlock, qname string) *serverBlock {
	var best *serverBlock
	longest := 0
	for i := range blocks {
		if blocks[i].Offline == nil {
			continue
		}
		for _, l := range blocks[i].Listeners {
			if n := matching(l, qname); n > longest && !outdone(blocks, i, l, qname) {
				best, longest = &blocks[i], n
			}
		}
	}
	return best
}

// matching returns the length of the listener's zone if it holds the name, and 0 otherwise.
func matching(l config.Listener, qname string) int {
	if !plugin.Name(l.Zone).Matches(qname) {
		return 0
	}
	return len(l.Zone)
}

// outdone reports whether another listener at the port of l gets the queries for a name.
// l belongs to block i. The longer zone wins; of equal zones the earlier block does.
func outdone(blocks []serverBlock, i int, l config.Listener, qname string) bool {
	for j, b := range blocks {
		for _, other := range b.Listeners {
			if other.Transport != l.Transport || other.Port != l.Port {
				continue
			}
			if n := matching(other, qname) - matching(l, qname); n > 0 || n == 0 && j < i {
				return true
			}
		}
	}
	return false
}

// stanzaLine returns the line of the stanza with an argument that is the host or one of
// its parents. If there are several, the longest argument counts.
func (b *serverBlock) stanzaLine(h lookup.Host) (file string, line int, text string, ok bool) {
	best := 0
	for _, t := range b.tokens {
		if n := covers(t.Text, h); n > best {
			best, file, line, text, ok = n, cmp.Or(t.File, b.file), t.Line, t.Text, true
		}
	}
	return file, line, text, ok
}
