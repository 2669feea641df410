package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func lists() *cli.Command {
	return &cli.Command{
		Name:  "lists",
		Usage: "print how the lists in a folder are",
		Description: `Reads every list, computes its checksum anew, and prints when it was fetched and
may be fetched again. Nothing is changed and nobody is asked; a CoreDNS may be
running meanwhile.

   safebrowsing lists -db /var/lib/coredns
   safebrowsing lists -json -db /var/lib/coredns | jq -r 'select(.sha256 == "").name'

The exit status is 1 if a list is damaged or there are none. The JSON of a list
that is damaged, or was never fetched, has no sha256.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "db", Usage: "the `FOLDER` with the lists", Required: true},
			jsonFlag(),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("lists takes no argument such as %q, see safebrowsing lists -h", c.Args().First())
			}
			return printLists(newConsole(c), c.String("db"))
		},
	}
}

// listed is the finding about one list.
type listed struct {
	Name        string `json:"name"`
	Entries     int    `json:"entries"`
	PrefixBytes []int  `json:"prefix_bytes"`
	Version     string `json:"version"`
	SHA256      string `json:"sha256"`
	Updated     string `json:"updated"`
	NotBefore   string `json:"not_before"`
	Failures    int    `json:"failures"`
}

func printLists(out *console, dir string) error {
	all, err := updater.Status(dir)
	if err != nil {
		if !errors.Is(err, updater.ErrDamaged) {
			return err
		}
		out.complain("%v", err)
	}
	bad := err != nil || len(all) == 0
	if len(all) == 0 {
		out.complain("no list has been fetched into %s yet: safebrowsing update does so, or CoreDNS with db %s", dir, dir)
	}
	for _, s := range all {
		if s.Err != nil && !errors.Is(s.Err, fs.ErrNotExist) {
			bad = true
			out.complain("list %s: %v: a running CoreDNS sets it aside at its next start and fetches it anew", s.Name, s.Err)
		}
		if out.json {
			out.object(listedOf(s))
		}
	}
	if !out.json && len(all) > 0 {
		out.table(all)
	}
	return out.end(bad)
}

func listedOf(s updater.ListStatus) listed {
	l := listed{
		Name: s.Name, Entries: s.Entries, PrefixBytes: s.Widths, Version: base64.StdEncoding.EncodeToString(s.Version),
		Updated: stamp(s.Updated), NotBefore: stamp(s.NotBefore), Failures: s.Failures,
	}
	if s.Err == nil {
		l.SHA256 = hex.EncodeToString(s.Checksum[:])
	}
	return l
}

// table prints lists as text.
func (o *console) table(all []updater.ListStatus) {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tENTRIES\tBYTES EACH\tVERSION\tCHECKSUM\tUPDATED\tNOT BEFORE\tFAILURES")
	for _, s := range all {
		checksum := "verified"
		switch {
		case errors.Is(s.Err, fs.ErrNotExist):
			checksum = "not fetched"
		case s.Err != nil:
			checksum = "DAMAGED"
		}
		l := listedOf(s)
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Name, l.Entries, strings.Trim(fmt.Sprint(l.PrefixBytes), "[]"),
			orDash(short(l.Version)), checksum, orDash(l.Updated), orDash(l.NotBefore), l.Failures)
	}
	w.Flush()
	o.printf("%s", table.String())
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short cuts a version, which may be long, for the table.
func short(version string) string {
	const most = 24
	if len(version) > most {
		return version[:most-1] + "…"
	}
	return version
}
