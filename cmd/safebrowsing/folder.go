package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// errBothGiven says that two flags cannot be used together.
var errBothGiven = errors.New("-corefile and -db are both given: keep one of the two")

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
