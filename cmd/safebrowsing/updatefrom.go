package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// fromCorefile takes folder, server, lists and key from a Corefile with one engine.
func (u *fetching) fromCorefile(c *cli.Command) (*block.Block, error) {
	for _, flag := range []string{"db", "endpoint", "protocol", "lists"} {
		if c.IsSet(flag) {
			return nil, fmt.Errorf("-corefile and -%s are both given: keep one of the two", flag)
		}
	}
	path := c.String("corefile")
	blocks, err := readCorefile(path)
	if err != nil {
		return nil, err
	}
	only, err := onlyEngine(path, blocks)
	if err == nil && only.Config.DB == "" {
		err = fmt.Errorf("%s has db off: CoreDNS keeps its lists in memory only, and there is no folder to fill", only.stanza())
	}
	for _, b := range ours(blocks) {
		if err != nil || b.Block != only.Block {
			b.End()
		}
	}
	if err != nil {
		return nil, err
	}
	u.dir = only.Config.DB
	return only.Block, nil
}

// onlyEngine returns the engine of a Corefile. It is an error if there is not exactly one
// that uses Safe Browsing and keeps lists.
func onlyEngine(path string, blocks []serverBlock) (*serverBlock, error) {
	all := slices.DeleteFunc(enginesOf(blocks), func(b serverBlock) bool { return !b.Config.Online })
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%s has no API key and no endpoint: only your own lists are in force, and nothing is fetched", path)
	case len(all) > 1:
		return nil, fmt.Errorf("%s has several settings for Safe Browsing, %s: select one with -db, -endpoint, -protocol and -lists", path, named(all))
	case len(all[0].Settings.Stored()) == 0:
		return nil, fmt.Errorf("%s has mode nostorage, which keeps no lists", all[0].stanza())
	}
	return &all[0], nil
}

// fromFlags takes the folder and the server from the command line.
func (u *fetching) fromFlags(c *cli.Command) (_ *block.Block, err error) {
	if u.dir, err = folderOf(c); err != nil {
		return nil, err
	}
	dialect, err := protocol.ParseDialect(c.String("protocol"))
	if err != nil {
		return nil, fmt.Errorf("-protocol: %w", err)
	}
	endpoint, err := endpointOf(c, dialect)
	if err != nil {
		return nil, err
	}
	names, err := heldIn(u.dir, dialect.Origin(endpoint, ""))
	if err != nil {
		return nil, err
	}
	if names = slices.DeleteFunc(names, func(name string) bool { return checkList(dialect, name, endpoint) != nil }); len(names) == 0 {
		names = nil // the default
	}
	if c.IsSet("lists") {
		names = strings.Split(c.String("lists"), ",")
	}
	for _, name := range names {
		if err := checkList(dialect, name, endpoint); err != nil {
			return nil, fmt.Errorf("-lists: %w", err)
		}
	}
	key, _, err := config.KeyOfProcess()
	if err != nil {
		return nil, err
	}
	return openFolderOf("", endpoint, dialect, key, names)
}

// endpointOf returns the URL in -endpoint, or several of them in one order, since the
// origin of lists does not depend on the order in the Corefile.
func endpointOf(c *cli.Command, d *protocol.Dialect) (string, error) {
	urls := strings.Fields(c.String("endpoint"))
	if len(urls) == 0 {
		return d.Endpoint, nil
	}
	for i, url := range urls {
		urls[i] = strings.TrimSuffix(url, "/")
	}
	endpoint, err := strings.Join(urls, " "), protocol.CheckEndpoints(urls)
	switch {
	case err != nil:
		return "", fmt.Errorf("-endpoint: %w", err)
	case !d.Serves(endpoint):
		return "", fmt.Errorf("%s does not speak protocol %s: leave out -endpoint, or name another protocol", endpoint, d)
	case len(urls) > 1 && d != protocol.DialectV5:
		return "", fmt.Errorf("-endpoint: protocol %s asks one server", d)
	}
	all := strings.Fields(endpoint)
	slices.Sort(all)
	return strings.Join(all, " "), nil
}

// checkList returns why a list cannot be fetched from an endpoint, or nil.
func checkList(d *protocol.Dialect, name, endpoint string) error {
	if name == protocol.GlobalCache && slices.Contains(d.Modes, lookup.RealTime) {
		return nil
	}
	return d.CheckList(name, protocol.IsGoogle(endpoint))
}

// heldIn returns the names of the lists in a folder. It is an error if they came from a
// server that the origin does not take over from.
func heldIn(dir string, origin updater.Origin) (names []string, err error) {
	all, err := updater.Status(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) {
		return nil, err
	}
	for _, s := range all {
		known := s.Origin == "" || s.Origin == origin.Name ||
			slices.ContainsFunc(origin.Predecessors, func(p updater.Predecessor) bool { return p.Name == s.Origin })
		if !known {
			other, by := protocol.SplitOrigin(s.Origin)
			flag := other
			if strings.Contains(flag, " ") { // several endpoints are one argument
				flag = "'" + flag + "'"
			}
			return nil, fmt.Errorf("%s holds lists of %s: use -endpoint %s -protocol %s, or another folder", dir, other, flag, by)
		}
		names = append(names, s.Name)
	}
	return names, nil
}
