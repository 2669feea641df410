package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// fromCorefile takes everything from a Corefile with one engine.
func (u *fetching) fromCorefile(c *cli.Command) (*Offline, error) {
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
	for _, b := range blocks {
		if b.Offline != nil && b.Offline != only {
			b.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	u.dir = only.Folder()
	return only, nil
}

// onlyEngine returns the settings of a Corefile for Safe Browsing, of which there
// must be one, with a folder.
func onlyEngine(path string, blocks []serverBlock) (*Offline, error) {
	all := slices.DeleteFunc(enginesOf(blocks), func(b serverBlock) bool { return b.Endpoint() == "" })
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%s has no API key and no endpoint: only your own lists are in force, and nothing is fetched", path)
	case len(all) > 1:
		return nil, fmt.Errorf("%s has several settings for Safe Browsing, %s: choose with -db, -endpoint, -protocol and -lists", path, named(all))
	case len(all[0].Lists()) == 0:
		return nil, fmt.Errorf("%s has mode nostorage, in which no lists are kept", all[0].stanza())
	case all[0].Folder() == "":
		return nil, fmt.Errorf("%s has db off: CoreDNS keeps its lists in memory only, and there is no folder to fill", all[0].stanza())
	}
	return all[0].Offline, nil
}

// fromFlags takes the folder and the server from the command line.
func (u *fetching) fromFlags(c *cli.Command) (_ *Offline, err error) {
	if u.dir, err = folderOf(c); err != nil {
		return nil, err
	}
	endpoint := strings.TrimSuffix(c.String("endpoint"), "/")
	dialect, err := protocol.ParseDialect(c.String("protocol"))
	if err != nil {
		return nil, fmt.Errorf("-protocol: %w", err)
	}
	names, err := heldIn(u.dir, endpoint)
	if err != nil {
		return nil, err
	}
	if c.IsSet("lists") {
		names = strings.Split(c.String("lists"), ",")
	}
	return openOffline("", endpoint, dialect, os.Getenv(config.KeyVariable), names)
}

// heldIn returns the names of the lists in a folder, none if it has none. Lists
// of another server are an error: its schedule would be mixed with this one's.
func heldIn(dir, endpoint string) (names []string, err error) {
	all, err := updater.Status(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) {
		return nil, err
	}
	endpoints, _ := originsOf(all)
	for _, other := range endpoints {
		if other != endpoint {
			return nil, fmt.Errorf("%s holds lists of %s: give -endpoint %s, or another folder", dir, other, other)
		}
	}
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, nil
}
