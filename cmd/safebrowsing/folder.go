package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"
)

// errBothGiven says that two flags exclude one another.
var errBothGiven = errors.New("-corefile and -db are both given: keep one of the two")

// folderFlag is the flag of the commands that read or fill a folder of lists.
func folderFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "db", Usage: usage + " (default: $STATE_DIRECTORY, else coredns-safebrowsing in your cache folder)"}
}

// folderOf returns the folder that -db names, or the default one.
func folderOf(c *cli.Command) (string, error) {
	if c.IsSet("db") {
		return c.String("db"), nil
	}
	return defaultFolder()
}

// defaultFolder is where the plugin keeps lists unless the Corefile has db.
func defaultFolder() (string, error) {
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return first, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no default folder, give -db or -corefile: %w", err)
	}
	return filepath.Join(cache, "coredns-safebrowsing"), nil
}
