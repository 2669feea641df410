package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const statusHelp = `Prints whether the network is protected, by what, and what is next: from the
Corefile, and from what CoreDNS has saved in the folder of its lists. It sends
nothing and changes nothing. It does not look whether CoreDNS runs; with db off,
only CoreDNS has the lists, and the page of the property status shows them.

   safebrowsing status -corefile /etc/coredns/Corefile
   safebrowsing status -json -corefile Corefile | jq -r '.problems[]'

The exit status is 0 if the network is protected, and 1 if it is not, or only in
part. The state in JSON is protected, in_part or not_protected.`

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "print whether the network is protected, by what, and what is next",
		Description: statusHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "the `FILE` of CoreDNS", Required: true},
			jsonFlag(),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("status takes no argument such as %q, see safebrowsing status -h", c.Args().First())
			}
			blocks, err := readCorefile(c.String("corefile"))
			if err != nil {
				return err
			}
			defer closeBlocks(blocks)
			r, err := reportOf(blocks, time.Now())
			if err != nil {
				return err
			}
			return printStatus(newConsole(c), r)
		},
	}
}

// reportOf returns what the server blocks of a Corefile protect by, as CoreDNS saved it last. A
// schedule that is damaged counts as one that waits, as in CoreDNS.
func reportOf(blocks []serverBlock, now time.Time) (status.Report, error) {
	var all []*block.Block
	for _, b := range blocks {
		if b.Block == nil {
			continue
		}
		if _, err := b.Lists(); err != nil && !errors.Is(err, updater.ErrDamaged) {
			return status.Report{}, err
		}
		all = append(all, b.Block)
	}
	return block.Report(all, now), nil
}

// standing is a status in JSON.
type standing struct {
	State    string          `json:"state"`
	Headline string          `json:"headline"`
	Problems []text          `json:"problems"`
	Notes    []text          `json:"notes"`
	Services []serviceStatus `json:"services"`
}

// serviceStatus is a service in JSON. Times are "" if they are unknown or have passed.
type serviceStatus struct {
	Title     string   `json:"title"`
	Endpoint  text     `json:"endpoint"`
	Mode      string   `json:"mode"`
	Folder    text     `json:"db"` // "": off
	Lists     []listed `json:"lists"`
	FetchNot  string   `json:"fetch_not_before"`
	FetchWhy  text     `json:"fetch_reason"`
	SearchNot string   `json:"search_not_before"`
	SearchWhy text     `json:"search_reason"`
	Budget    int      `json:"budget"` // 0: no limit
	Left      int      `json:"budget_remaining"`
	Advisory  string   `json:"advisory"`       // URL of Google's words about warnings; "": Google does not provide them
	Spent     int      `json:"searches_today"` // with those that are reserved
	Cost      string   `json:"cost_today"`     // in US-$; "": nothing
	MostCost  string   `json:"cost_limit"`     // of a day, in US-$; "": searches cost nothing
}

func printStatus(out *console, r status.Report) error {
	f := status.Find(r)
	if out.json {
		out.object(standingOf(r, f))
		return out.end(f.State != status.Protected)
	}
	out.printf("%s\n", f.Headline)
	for _, problem := range f.Problems {
		out.printf("  problem  %s\n", say.Shown(problem))
	}
	for _, note := range f.Notes {
		out.printf("  note     %s\n", say.Shown(note))
	}
	for _, s := range r.Services {
		out.service(s, r.At)
	}
	for _, b := range r.Blocks {
		for _, own := range b.Own {
			does := map[bool]string{false: "blocks", true: "allows"}[own.Allow]
			out.printf("\n%s %s %s, for the zones %s\n", say.Shown(own.Name), does, say.Count(own.Entries, "entry", "entries"), say.Shown(b.Zones))
		}
	}
	for _, notice := range f.Notices {
		out.printf("\n%s\n%s\n", notice.Text, status.NoGuarantee)
	}
	return out.end(f.State != status.Protected)
}

// service prints a service as text.
func (o *console) service(s status.Service, now time.Time) {
	folder := "db " + s.Folder
	if s.Folder == "" {
		folder = "db off"
	}
	o.printf("\n%s, mode %s, %s, %s\n", s.Title, s.Mode, say.Shown(s.Address), say.Shown(folder))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, l := range s.Lists {
		switch {
		case l.Missing():
			fmt.Fprintf(w, "  %s\tnot in force\t\t%s\n", l.Name, nextOf(l, now))
		case l.Updated.IsZero():
			fmt.Fprintf(w, "  %s\t%s\tof unknown age\t%s\n", l.Name, say.Count(l.Entries, "entry", "entries"), nextOf(l, now))
		default:
			fmt.Fprintf(w, "  %s\t%s\tfetched %s ago\t%s\n", l.Name, say.Count(l.Entries, "entry", "entries"), status.Age(now.Sub(l.Updated)), nextOf(l, now))
		}
	}
	w.Flush()
	o.printf("%s", table.String())
	if s.Fetch.Active(now) {
		o.printf("  no list is fetched before %s: %s\n", say.Time(s.Fetch.Until), say.Shown(s.Fetch.String()))
	}
	if s.Search.Active(now) {
		o.printf("  no name is confirmed before %s: %s\n", say.Time(s.Search.Until), say.Shown(s.Search.String()))
	}
	if s.Budget > 0 {
		o.printf("  searches left today: at least %d of %d\n", s.Left, s.Budget)
	}
	if cost := s.Cost(); cost != "" {
		o.printf("  %s\n", cost)
	}
}

// nextOf says when a list may be fetched again.
func nextOf(l updater.ListStatus, now time.Time) string {
	if l.NotBefore.After(now) {
		return "next fetch in " + status.Age(l.NotBefore.Sub(now))
	}
	return "next fetch is due"
}

func standingOf(r status.Report, f status.Findings) standing {
	s := standing{State: f.State.String(), Headline: f.Headline, Problems: textsOf(f.Problems), Notes: textsOf(f.Notes), Services: []serviceStatus{}}
	for _, service := range r.Services {
		one := serviceStatus{
			Title: service.Title, Endpoint: text(service.Address), Mode: service.Mode, Folder: text(service.Folder),
			Lists: []listed{}, Budget: service.Budget, Left: service.Left, Spent: service.Spent, Advisory: service.Advisory,
		}
		if service.Cost() != "" {
			one.Cost, one.MostCost = status.Dollars(service.Spent), status.Dollars(service.Budget)
		}
		if service.Fetch.Active(r.At) {
			one.FetchNot, one.FetchWhy = say.Stamp(service.Fetch.Until), text(service.Fetch.String())
		}
		if service.Search.Active(r.At) {
			one.SearchNot, one.SearchWhy = say.Stamp(service.Search.Until), text(service.Search.String())
		}
		for _, l := range service.Lists {
			one.Lists = append(one.Lists, listedOf(l, r.At))
		}
		s.Services = append(s.Services, one)
	}
	return s
}

// textsOf returns sentences for JSON: [] if there are none.
func textsOf(sentences []string) []text {
	all := []text{}
	for _, s := range sentences {
		all = append(all, text(s))
	}
	return all
}
