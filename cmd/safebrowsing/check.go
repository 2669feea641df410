package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func check() *cli.Command {
	return &cli.Command{
		Name:            "check",
		Usage:           "print whether names would be blocked, and why",
		ArgsUsage:       "NAME|URL...",
		HideHelpCommand: true, // "help" is a name like any other
		Description: `For each argument the verdict, and what led to it: the list and the expression
that matched, or the line of your own list. A URL is checked by its host, since
DNS sees no more of it.

With -corefile all is decided as that CoreDNS would, your own lists and zones
included; with -db by the lists in a folder only. A CoreDNS may be running
meanwhile. Nobody is asked, unless you say -confirm: then a suspected name is
confirmed by the server, as a query for it would be, within 10 seconds. Without
a key in the Corefile the one in $SAFEBROWSING_API_KEY is used.

   safebrowsing check -corefile /etc/coredns/Corefile example.com
   safebrowsing check -db /var/lib/coredns -json https://example.com/login
   SAFEBROWSING_API_KEY=... safebrowsing check -db /var/lib/coredns -confirm example.com

The exit status is 0 if all are safe, and 1 if one is unsafe or unsure, is no
name, or if a list is missing, so that a safe verdict means nothing.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "decide as the CoreDNS of this `FILE`"},
			&cli.StringFlag{Name: "db", Usage: "decide by the lists in this `FOLDER` (default: $STATE_DIRECTORY, else coredns-safebrowsing in your cache folder)"},
			&cli.BoolFlag{Name: "confirm", Usage: "have suspected names confirmed by the server"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			switch {
			case c.NArg() == 0:
				return errors.New("check takes names or URLs, see safebrowsing check -h")
			case c.IsSet("corefile") && c.IsSet("db"):
				return errors.New("-corefile and -db are both given: keep one of the two")
			}
			k, err := newChecker(c)
			if err != nil {
				return err
			}
			defer k.close()
			return k.checkAll(ctx, c.Args().Slice())
		},
	}
}

// confirmTimeout is how long one name may wait for its confirmation.
const confirmTimeout = 10 * time.Second

// checker decides on names.
type checker struct {
	*console
	blocks  []serverBlock // with -db the one that stands for the folder
	confirm bool
}

func newChecker(c *cli.Command) (k *checker, err error) {
	k = &checker{console: newConsole(c), confirm: c.Bool("confirm")}
	if c.IsSet("corefile") {
		k.blocks, err = readCorefile(c.String("corefile"))
		return k, err
	}
	dir := c.String("db")
	if !c.IsSet("db") {
		if dir, err = defaultFolder(); err != nil {
			return nil, err
		}
	}
	o, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	if k.confirm && o.Key() == "" && o.Endpoint() == protocol.DefaultEndpoint {
		return nil, errors.New("no API key: set $" + keyVariable + ", or leave out -confirm")
	}
	k.blocks = []serverBlock{{Offline: o, listeners: []listener{{zone: "."}}}}
	return k, nil
}

// defaultFolder is where the plugin keeps lists unless it is told.
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

// openFolder returns the plugin with all lists that are in a folder, of the
// server that they came from.
func openFolder(dir string) (*safebrowsing.Offline, error) {
	all, err := updater.Status(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: give the folder with -db, or -corefile", err)
	}
	endpoints, version := originsOf(all)
	if len(endpoints) > 1 {
		return nil, fmt.Errorf("%s holds lists of several servers, %s: use -corefile", dir, strings.Join(endpoints, " and "))
	}
	endpoint := ""
	if len(endpoints) == 1 && endpoints[0] != protocol.DefaultEndpoint {
		endpoint = endpoints[0]
	}
	var names []string
	for _, s := range all {
		if s.Name != likelySafe {
			names = append(names, s.Name)
		}
	}
	return safebrowsing.OpenFolder(dir, endpoint, version, os.Getenv(keyVariable), names)
}

// likelySafe is the list that lists what is likely safe.
const likelySafe = "gc-32b"

// originsOf returns the servers that lists came from, sorted, and the version of the
// protocol that can use them: version 5 goes on with lists of version 4.
func originsOf(all []updater.ListStatus) (endpoints []string, v protocol.Version) {
	v = protocol.Version4
	for _, s := range all {
		if s.Origin == "" {
			continue
		}
		endpoint, version := safebrowsing.SplitOrigin(s.Origin)
		endpoints, v = append(endpoints, endpoint), min(v, version)
	}
	if len(endpoints) == 0 {
		v = protocol.Version5
	}
	slices.Sort(endpoints)
	return slices.Compact(endpoints), v
}

func (k *checker) close() {
	for _, b := range k.blocks {
		if b.Offline != nil {
			b.Close()
		}
	}
}

func (k *checker) checkAll(ctx context.Context, args []string) error {
	bad := k.complainOfLists()
	for _, arg := range args {
		f := k.check(ctx, arg)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		bad = bad || f.Err != nil || f.Verdict != lookup.Safe
		if k.json {
			k.object(f.object())
		} else {
			k.finding(f)
		}
	}
	return k.end(bad)
}

// complainOfLists says which lists are missing or damaged, each once.
func (k *checker) complainOfLists() (bad bool) {
	said := make(map[string]bool)
	for _, b := range k.blocks {
		if b.Offline == nil {
			continue
		}
		for _, problem := range problemsOf(b.Offline) {
			if !said[problem] {
				k.complain("%s", problem)
			}
			said[problem], bad = true, true
		}
	}
	return bad
}

// problemsOf returns why names may not be found in the lists.
func problemsOf(o *safebrowsing.Offline) (all []string) {
	if o.Endpoint() == "" || len(o.Lists()) == 0 {
		return nil
	}
	switch _, err := os.Stat(o.Folder()); {
	case o.Folder() == "":
		return []string{"lists are kept in memory only: what they hold is not known here"}
	case err != nil:
		return []string{fmt.Sprintf("no list has been fetched yet: %v", err)}
	}
	for _, problem := range o.Problems() {
		all = append(all, problem.Error())
	}
	return all
}
