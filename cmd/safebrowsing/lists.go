package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const listsHelp = `Reads every list, verifies its checksum, and prints when it was fetched and when
it may be fetched again. The command changes nothing and sends no request. A
CoreDNS may use the same folder at the same time.

   safebrowsing lists -corefile /etc/coredns/Corefile
   safebrowsing lists -db /var/lib/coredns
   safebrowsing lists -json -db /var/lib/coredns | jq -r 'select(.sha256 == "").name'

Your own lists by URL follow, as CoreDNS has fetched them.

The exit status is 1 if a list is damaged, if a list of the Corefile is missing,
or if there are no lists. In JSON, a list that is damaged or was never fetched has
an empty sha256, and an own list by URL has own_list in place of name.`

func lists() *cli.Command {
	return &cli.Command{
		Name:        "lists",
		Usage:       "print the state of the lists in a folder",
		Description: listsHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "print the lists of the CoreDNS of this `FILE`"},
			folderFlag("the `FOLDER` with the lists"),
			jsonFlag(),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("lists takes no argument such as %q, see safebrowsing lists -h", c.Args().First())
			}
			if !c.IsSet("corefile") {
				dir, err := folderOf(c)
				if err != nil {
					return err
				}
				return printLists(newConsole(c), dir, nil, savedIn(dir))
			}
			if c.IsSet("db") {
				return errBothGiven
			}
			dir, wanted, own, err := listsOf(c.String("corefile"))
			if err != nil {
				return err
			}
			return printLists(newConsole(c), dir, wanted, own)
		},
	}
}

// listsOf returns the folder of a Corefile and the names of the lists for it, and the
// states of its lists by URL. The folder is "" if it has only these.
func listsOf(path string) (dir string, wanted []string, own []urlList, err error) {
	blocks, err := readCorefile(path)
	if err != nil {
		return "", nil, nil, err
	}
	defer closeBlocks(blocks)
	own = fetchedBy(blocks)
	var all []serverBlock // one for each folder
	for _, b := range enginesOf(blocks) {
		if b.Config.DB == "" || len(b.Settings.Stored()) == 0 {
			continue
		}
		if !slices.ContainsFunc(all, func(other serverBlock) bool { return other.Config.DB == b.Config.DB }) {
			all = append(all, b)
		}
		wanted = append(wanted, b.Settings.Stored()...)
	}
	switch {
	case len(all) == 0 && len(own) > 0:
		return "", nil, own, nil
	case len(all) == 0:
		return "", nil, nil, fmt.Errorf("%s keeps no lists in a folder: it has no API key and no endpoint, db off, or mode nostorage", path)
	case len(all) > 1:
		return "", nil, nil, fmt.Errorf("%s keeps lists in several folders, %s: select one with -db", path, named(all))
	}
	slices.Sort(wanted)
	return all[0].Config.DB, slices.Compact(wanted), own, nil
}

// listed is the state of one list, in JSON.
type listed struct {
	Name        string `json:"name"`
	InForce     bool   `json:"in_force"`
	Entries     int    `json:"entries"`
	PrefixBytes []int  `json:"prefix_bytes"`
	Version     string `json:"version"`
	SHA256      string `json:"sha256"`
	Updated     string `json:"updated"`
	NotBefore   string `json:"not_before"`
	Failures    int    `json:"failures"`
	Reason      text   `json:"reason"` // of not_before; "": that time has passed
}

// printLists prints the lists of a folder, if it is not "", and lists by URL. It complains
// about lists that are missing.
func printLists(out *console, dir string, wanted []string, own []urlList) error {
	bad := out.missing(own)
	if dir == "" {
		out.fetched(own)
		return out.end(bad)
	}
	all, err := updater.Status(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no list has been fetched yet: %w", err)
		}
		if !errors.Is(err, updater.ErrDamaged) {
			return err
		}
		out.complain("%v", err)
	}
	bad = bad || err != nil || len(all) == 0
	if len(all) == 0 {
		out.complain("no list has been fetched into %s yet: run safebrowsing update, or CoreDNS with db %s", dir, dir)
	}
	for _, s := range all {
		if s.Err != nil && !errors.Is(s.Err, fs.ErrNotExist) {
			bad = true
			out.complain("list %s: %v: CoreDNS sets it aside at its next start and fetches it again", s.Name, s.Err)
		}
		if out.json {
			out.object(listedOf(s, time.Now()))
		}
	}
	for _, name := range wanted {
		i := slices.IndexFunc(all, func(s updater.ListStatus) bool { return s.Name == name })
		if len(all) > 0 && (i < 0 || errors.Is(all[i].Err, fs.ErrNotExist)) {
			bad = true
			out.complain("list %s of the Corefile has not been fetched yet", name)
		}
	}
	if !slices.ContainsFunc(all, func(s updater.ListStatus) bool { return !s.Missing() }) {
		bad = true
	}
	if !out.json && len(all) > 0 {
		out.table(all)
		out.reasons(all)
	}
	out.fetched(own)
	return out.end(bad)
}

func listedOf(s updater.ListStatus, now time.Time) listed {
	l := listed{
		Name: s.Name, InForce: !s.Missing(), Entries: s.Entries, PrefixBytes: s.Widths, Version: base64.StdEncoding.EncodeToString(s.Version),
		Updated: say.Stamp(s.Updated), NotBefore: say.Stamp(s.NotBefore), Failures: s.Failures,
	}
	if s.Hold.Active(now) {
		l.Reason = text(s.Hold.String())
	}
	if !s.Missing() {
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
		case s.Missing():
			checksum = "DAMAGED"
		}
		l := listedOf(s, time.Now())
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Name, l.Entries, strings.Trim(fmt.Sprint(l.PrefixBytes), "[]"),
			orDash(short(l.Version)), checksum, shownTime(l.Updated), shownTime(l.NotBefore), l.Failures)
	}
	w.Flush()
	o.printf("%s", table.String())
}

// reasons prints each back-off that is active now, with the lists that it delays.
func (o *console) reasons(all []updater.ListStatus) {
	var order []string
	names := make(map[string][]string)
	for _, s := range all {
		reason := listedOf(s, time.Now()).Reason
		if reason == "" || s.Hold.Failures == 0 {
			continue
		}
		line := fmt.Sprintf("not asked before %s: %s", say.Time(s.NotBefore), reason)
		if names[line] == nil {
			order = append(order, line)
		}
		names[line] = append(names[line], s.Name)
	}
	for _, line := range order {
		o.printf("%s: %s\n", strings.Join(names[line], ", "), say.Shown(line))
	}
}

// shownTime returns a time of an object, which is by RFC 3339, as texts for people have it.
func shownTime(stamp string) string {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return orDash(stamp)
	}
	return say.Time(t)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short shortens a version for the table.
func short(version string) string {
	const most = 24
	if len(version) > most {
		return version[:most-1] + "…"
	}
	return version
}
