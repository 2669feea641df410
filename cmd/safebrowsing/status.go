package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/pause"
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

// reportOf returns what the server blocks of a Corefile protect by.
func reportOf(blocks []serverBlock, now time.Time) (status.Report, error) {
	r := status.Report{At: now}
	services := make(map[config.Settings]int)
	for _, b := range blocks {
		if b.Offline == nil {
			continue
		}
		standing := status.Block{Zones: strings.Join(b.Zones(), " "), Service: -1, Monitor: !b.Blocks(), Paused: b.pausedUntil(now)}
		for _, own := range b.OwnLists() {
			o := status.OwnList{Name: own.Named, Allow: own.Allow, Entries: own.InForce()}
			if own.Err != nil {
				o.Trouble = own.Err.Error()
			}
			standing.Own = append(standing.Own, o)
		}
		if b.Endpoint() != "" {
			i, ok := services[b.Settings()]
			if !ok {
				s, err := b.service(now)
				if err != nil {
					return r, err
				}
				i = len(r.Services)
				services[b.Settings()] = i
				r.Services = append(r.Services, s)
			}
			standing.Service = i
		}
		r.Blocks = append(r.Blocks, standing)
	}
	return r, nil
}

// service returns how a service protects, as CoreDNS saved it last. A schedule that is
// damaged counts as one that waits, as in CoreDNS.
func (o *Offline) service(now time.Time) (status.Service, error) {
	s := status.Service{
		Title: o.Protocol().Title, Address: o.Endpoint(), Mode: o.Settings().Mode.String(), Folder: o.Folder(),
		Ending: o.Settings().Ending().Text(now), Ended: o.Settings().Ending().Over(now), Unknown: o.Folder() == "" && len(o.Lists()) > 0, Fetch: o.FetchHold(), Search: o.SearchHold(),
	}
	s.Notice, s.Advisory = answer.Notice(o.Provider()), o.Provider().Advisory
	if perDay, ledger, _ := o.Budget(); ledger != nil {
		s.Budget, s.Left, s.Spent, s.Paid = perDay, ledger.Remaining(perDay, now), ledger.Spent(now), o.Protocol().Paid
		s.InPart = status.SpentShares(ledger.Uses(), perDay, now)
	}
	if s.Folder == "" {
		return s, nil
	}
	all, err := updater.Status(o.Folder())
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, updater.ErrDamaged) {
		return s, err
	}
	for _, name := range o.Lists() {
		l := statusOf(all, name)
		s.Lists = append(s.Lists, status.List{Name: name, Entries: l.Entries, Updated: l.Updated, Due: l.NotBefore, Missing: l.Err != nil})
	}
	return s, nil
}

// pausedUntil returns when the pause of the server block ends, or the zero time. A file that
// cannot be read pauses nothing, as in CoreDNS.
func (o *Offline) pausedUntil(now time.Time) time.Time {
	folder := o.cfg.PauseFolder()
	if folder == "" || regularOrNone(pause.FileIn(folder)) != nil {
		return time.Time{}
	}
	raw, err := os.ReadFile(pause.FileIn(folder))
	if err != nil {
		return time.Time{}
	}
	all, _ := pause.Parse(raw)
	until, _ := pause.Until(all, o.Zones(), now)
	return until
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
	Title     string       `json:"title"`
	Endpoint  text         `json:"endpoint"`
	Mode      string       `json:"mode"`
	Folder    text         `json:"db"` // "": off
	Lists     []listStatus `json:"lists"`
	FetchNot  string       `json:"fetch_not_before"`
	FetchWhy  text         `json:"fetch_reason"`
	SearchNot string       `json:"search_not_before"`
	SearchWhy text         `json:"search_reason"`
	Budget    int          `json:"budget"` // 0: no limit
	Left      int          `json:"budget_remaining"`
	Advisory  string       `json:"advisory"`       // URL of Google's words about warnings; "": Google does not provide them
	Spent     int          `json:"searches_today"` // with those that are reserved
	Cost      string       `json:"cost_today"`     // in US-$; "": nothing
	MostCost  string       `json:"cost_limit"`     // of a day, in US-$; "": searches cost nothing
}

// listStatus is a list in JSON.
type listStatus struct {
	Name      string `json:"name"`
	InForce   bool   `json:"in_force"`
	Entries   int    `json:"entries"`
	Updated   string `json:"updated"`
	NotBefore string `json:"not_before"`
}

func printStatus(out *console, r status.Report) error {
	f := status.Find(r)
	if out.json {
		out.object(standingOf(r, f))
		return out.end(f.State != status.Protected)
	}
	out.printf("%s\n", f.Headline)
	for _, problem := range f.Problems {
		out.printf("  problem  %s\n", shown(problem))
	}
	for _, note := range f.Notes {
		out.printf("  note     %s\n", shown(note))
	}
	for _, s := range r.Services {
		out.service(s, r.At)
	}
	for _, b := range r.Blocks {
		for _, own := range b.Own {
			does := map[bool]string{false: "blocks", true: "allows"}[own.Allow]
			out.printf("\n%s %s %s, for the zones %s\n", shown(own.Name), does, count(own.Entries, "entry", "entries"), shown(b.Zones))
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
	o.printf("\n%s, mode %s, %s, %s\n", s.Title, s.Mode, shown(s.Address), shown(folder))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, l := range s.Lists {
		switch {
		case l.Missing:
			fmt.Fprintf(w, "  %s\tnot in force\t\t%s\n", l.Name, nextOf(l, now))
		case l.Updated.IsZero():
			fmt.Fprintf(w, "  %s\t%s\tof unknown age\t%s\n", l.Name, count(l.Entries, "entry", "entries"), nextOf(l, now))
		default:
			fmt.Fprintf(w, "  %s\t%s\tfetched %s ago\t%s\n", l.Name, count(l.Entries, "entry", "entries"), status.Age(now.Sub(l.Updated)), nextOf(l, now))
		}
	}
	w.Flush()
	o.printf("%s", table.String())
	if s.Fetch.Active(now) {
		o.printf("  no list is fetched before %s: %s\n", status.Moment(s.Fetch.Until), shown(s.Fetch.String()))
	}
	if s.Search.Active(now) {
		o.printf("  no name is confirmed before %s: %s\n", status.Moment(s.Search.Until), shown(s.Search.String()))
	}
	if s.Budget > 0 {
		o.printf("  searches left today: at least %d of %d\n", s.Left, s.Budget)
	}
	if cost := s.Cost(); cost != "" {
		o.printf("  %s\n", cost)
	}
}

// nextOf says when a list may be fetched again.
func nextOf(l status.List, now time.Time) string {
	if l.Due.After(now) {
		return "next fetch in " + status.Age(l.Due.Sub(now))
	}
	return "next fetch is due"
}

func standingOf(r status.Report, f status.Findings) standing {
	s := standing{State: f.State.String(), Headline: f.Headline, Problems: textsOf(f.Problems), Notes: textsOf(f.Notes), Services: []serviceStatus{}}
	for _, service := range r.Services {
		one := serviceStatus{
			Title: service.Title, Endpoint: text(service.Address), Mode: service.Mode, Folder: text(service.Folder),
			Lists: []listStatus{}, Budget: service.Budget, Left: service.Left, Spent: service.Spent, Advisory: service.Advisory,
		}
		if service.Cost() != "" {
			one.Cost, one.MostCost = status.Dollars(service.Spent), status.Dollars(service.Budget)
		}
		if service.Fetch.Active(r.At) {
			one.FetchNot, one.FetchWhy = stamp(service.Fetch.Until), text(service.Fetch.String())
		}
		if service.Search.Active(r.At) {
			one.SearchNot, one.SearchWhy = stamp(service.Search.Until), text(service.Search.String())
		}
		for _, l := range service.Lists {
			one.Lists = append(one.Lists, listStatus{l.Name, !l.Missing, l.Entries, stamp(l.Updated), stamp(l.Due)})
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
