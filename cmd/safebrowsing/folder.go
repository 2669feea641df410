package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// folderFlag returns the flag of the commands that use a folder of lists.
func folderFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "db", Usage: usage + " (default: $STATE_DIRECTORY, else coredns-safebrowsing in your cache folder)"}
}

// folderOf returns the folder that -db names, or the default one.
func folderOf(c *cli.Command) (string, error) {
	if c.IsSet("db") {
		return c.String("db"), nil
	}
	folder, err := config.DefaultFolder()
	if err != nil {
		return "", fmt.Errorf("there is no default folder, use -db or -corefile: %w", err)
	}
	return folder, nil
}

// dialectNames lists the protocols for the help of an option.
func dialectNames() string {
	names := protocol.DialectNames()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// openFolderOf returns a server block with the default properties and the lists of a folder, which
// were fetched by protocol d. key may be "". An endpoint of "" is the protocol's own. If lists
// is nil, the default lists are used.
func openFolderOf(dir, endpoint string, d *protocol.Dialect, key string, lists []string) (*block.Block, error) {
	cfg := config.Config{Block: config.Block{Zones: []string{"."}}, Online: true}
	cfg.Service = d.Service
	cfg.Engine, cfg.Secret = config.Engine{DB: dir, Endpoint: endpoint, Protocol: d.Name, APIKey: key, Lists: config.DefaultLists}, key
	if lists != nil {
		cfg.Lists = strings.Join(lists, " ")
	}
	return openBlock(cfg)
}
