package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func plan() *cli.Command {
	flags := []cli.Flag{
		&cli.FloatFlag{Name: "zipf", Usage: "names are asked for by Zipf's law with this `EXPONENT`; -names then says how many there are, and -popular nothing"},
		&cli.StringFlag{Name: "from", Usage: "take what is known from the metrics of a CoreDNS or a relay: a `URL`, a file, or - for standard input"},
		jsonFlag(),
	}
	for _, s := range sources {
		flags = append(flags, &cli.FloatFlag{Name: s.flag, Value: s.value, Usage: strings.TrimSpace("a `NUMBER` "+s.unit) + ". Default: " + s.from})
	}
	return &cli.Command{
		Name:  "plan",
		Usage: "compute what a large network needs, and what its searches cost",
		Description: `Prints queries, cores, memory and bandwidth of a network, and its bill for Web
Risk: with relays that share one cache, with a relay in each region, and without.
It sends no request, unless -from names a URL. Each default says where it is from.

   safebrowsing plan
   safebrowsing plan -lines 250000 -nodes 12 -life 24
   safebrowsing plan -from http://127.0.0.1:9153/metrics -json`,
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return errors.New("plan takes flags only, see safebrowsing plan -h")
			}
			n := provision{Zipf: c.Float("zipf")}
			for _, s := range sources {
				*s.field(&n) = c.Float(s.flag)
			}
			var read *measured
			if from := c.String("from"); from != "" {
				var err error
				read, err = awaited(ctx, func() (*measured, error) { return measure(ctx, from, c.Root().Reader, time.Now()) })
				if err != nil {
					return fmt.Errorf("-from %s: %w", from, err)
				}
				read.into(&n, c.IsSet)
			}
			if err := n.check(); err != nil {
				return err
			}
			out, p := newConsole(c), n.plan()
			p.Measured = read
			if out.json {
				out.object(p)
			} else {
				out.plan(p)
			}
			return out.end(false)
		},
	}
}

// check refuses what no network has.
func (n *provision) check() error {
	for _, s := range sources {
		v := *s.field(n)
		switch s.flag {
		case "popular", "misses", "changed":
			if !(v >= 0 && v <= 1) {
				return fmt.Errorf("-%s %v: this is a share, from 0 to 1", s.flag, v)
			}
		case "life":
			if !(v > 0 && v <= 24) {
				return fmt.Errorf("-life %v: an answer lives for up to 24 hours", v)
			}
		case "price":
			if !(v >= 0 && v <= 1) {
				return fmt.Errorf("-price %v: a search costs from 0 to 1 US-$", v)
			}
		default:
			if !(v > 0 && v <= 1e15) {
				return fmt.Errorf("-%s %v: this is a number above 0", s.flag, v)
			}
		}
	}
	switch {
	case !(n.Zipf >= 0 && n.Zipf < 10):
		return fmt.Errorf("-zipf %v: an exponent is near 1; 0 means that -popular counts", n.Zipf)
	case n.Zipf == 0 && n.Names > n.Lines*n.Queries:
		return fmt.Errorf("-names %v: %v lines with %v queries a day cannot ask for that number of names", n.Names, n.Lines, n.Queries)
	case n.Entries > math.MaxUint32:
		return fmt.Errorf("-entries %v: there are no more than %v prefixes of four bytes", n.Entries, uint32(math.MaxUint32))
	}
	return nil
}

// measured is what metrics tell of one process; 0: they do not.
type measured struct {
	Hours    float64 `json:"hours"`   // since its start
	Queries  float64 `json:"queries"` // a day; a relay has none
	CPU      float64 `json:"cpu"`     // µs a query
	Clients  float64 `json:"clients"` // of a relay
	Entries  float64 `json:"entries"`
	Searches float64 `json:"searches"` // a day
	Popular  float64 `json:"popular"`  // of these, for a relay: answers that live twice as long would save them
	Dollars  float64 `json:"dollars_a_day"`
	Month    float64 `json:"dollars_a_month"` // at this rate
}

// daysOfMonth is the mean of a year's months.
const daysOfMonth = 365.25 / 12

// maxMetrics is the most bytes of metrics that are read.
const maxMetrics = 16 << 20

// measure reads metrics in the text format of Prometheus.
func measure(ctx context.Context, from string, in io.Reader, now time.Time) (m *measured, err error) {
	source := in
	switch {
	case strings.HasPrefix(from, "http://"), strings.HasPrefix(from, "https://"):
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
		if err != nil {
			return m, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return m, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return m, fmt.Errorf("the server answers %s", answer.Status)
		}
		source = answer.Body
	case from != "-":
		file, err := os.Open(from)
		if err != nil {
			return m, err
		}
		defer file.Close()
		source = file
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(source, maxMetrics))
	if err != nil {
		return m, fmt.Errorf("this is not the text format of Prometheus: %w", err)
	}
	return measuredOf(families, now)
}

// measuredOf returns what metrics tell. A counter counts from the start of the process.
func measuredOf(families map[string]*dto.MetricFamily, now time.Time) (*measured, error) {
	begun := sum(families["process_start_time_seconds"], nil)
	if begun == 0 {
		return nil, errors.New("process_start_time_seconds is missing: are these the metrics of a CoreDNS with prometheus, or of a relay?")
	}
	lasted := now.Sub(time.Unix(int64(begun), 0))
	if lasted < time.Minute {
		return nil, errors.New("the process runs for less than a minute: wait for a day that is like others")
	}
	days := lasted.Hours() / 24
	m := &measured{
		Hours:    lasted.Hours(),
		Clients:  sum(families["safebrowsing_relay_clients"], nil),
		Entries:  sum(families["coredns_safebrowsing_list_entries"], nil),
		Searches: sum(families["coredns_safebrowsing_requests_total"], map[string]string{"method": "search"}) / days,
	}
	m.Popular = sum(families["safebrowsing_relay_searches_total"], map[string]string{"reason": "popular"}) / days
	if queries := sum(families["coredns_dns_requests_total"], nil); queries > 0 {
		m.Queries, m.CPU = queries/days, sum(families["process_cpu_seconds_total"], nil)/queries*1e6
	}
	return m, nil
}

// sum adds the values of a metric that have these labels.
func sum(family *dto.MetricFamily, labels map[string]string) (total float64) {
	for _, metric := range family.GetMetric() {
		has := 0
		for _, pair := range metric.GetLabel() {
			if labels[pair.GetName()] == pair.GetValue() {
				has++
			}
		}
		if has >= len(labels) {
			total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
		}
	}
	return total
}

// into puts what was measured into a network, but for what a flag says, and computes what the searches
// cost. A CoreDNS is one server of one line, which asks for all; a relay knows its clients, and no queries.
func (m *measured) into(n *provision, isSet func(flag string) bool) {
	set := func(flag string, field *float64, value float64) {
		if value > 0 && !isSet(flag) {
			*field = value
		}
	}
	set("entries", &n.Entries, m.Entries)
	set("nodes", &n.Nodes, m.Clients)
	if m.Queries > 0 {
		set("lines", &n.Lines, 1)
		set("queries", &n.Queries, m.Queries/n.Lines)
		set("cpu", &n.CPU, m.CPU)
		set("nodes", &n.Nodes, 1)
		set("regions", &n.Regions, 1)
	}
	if most := n.Lines * n.Queries; n.Names > most && !isSet("names") {
		n.Names = most / 400 // as the defaults
	}
	m.Dollars = m.Searches * n.Price
	m.Month = m.Dollars * daysOfMonth
}

func (o *console) plan(p planned) {
	w := tabwriter.NewWriter(o.w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t")) }
	n := p.Network
	if m := p.Measured; m != nil {
		row("measured for", say.Age(time.Duration(m.Hours*float64(time.Hour))))
		if m.Queries > 0 {
			row("queries a day", number(m.Queries), number(m.CPU)+" µs a query")
		} else {
			row("clients", number(m.Clients))
			row("popular again a day", number(m.Popular), "answers that live twice as long would save "+number(m.Popular*n.Price)+" US-$ a day")
		}
		row("entries", number(m.Entries))
		row("searches a day", number(m.Searches), "at this rate "+number(m.Dollars)+" US-$ a day, "+number(m.Month)+" a month")
		row()
	}
	for _, s := range sources {
		value, from := *s.field(&n), s.from
		if value != s.value {
			from = "-" + s.flag
			if p.Measured != nil {
				from += " or measured"
			}
		}
		row(s.flag, number(value), s.unit, from)
	}
	row()
	row("queries a second", number(p.Rate), "at the peak "+number(p.PeakRate))
	row("cores busy at the peak", number(p.Cores), fmt.Sprintf("behind a packet cache %s, and %s for it", number(p.CoresBehind), number(p.CacheCores)))
	row("memory of a node for lists", size(p.Memory), "during a full update "+size(p.PeakMemory))
	row("lists over the network", size(p.Full), fmt.Sprintf("and %s a node and day: %s/s for all", size(p.Daily), bits(p.FleetRate)))
	row("all nodes cold within a minute", bits(p.ColdRate)+"/s")
	row("one name shares a prefix in", number(p.OneIn))
	row()
	row("who asks the service", "searches a day", "a second", "US-$ a day", "a line and year")
	for _, t := range append(p.Tiers, p.Saved) {
		row(t.Name, number(t.Searches), number(t.Rate), number(t.Dollars), number(t.Line))
	}
	if o.err == nil {
		o.err = w.Flush()
	}
}

// number returns a number with three digits that count.
func number(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}} {
		if math.Abs(v) >= unit.of {
			return short(v/unit.of) + unit.name
		}
	}
	return short(v)
}

func short(v float64) string {
	if math.Abs(v) >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func size(bytes float64) string { return say.Size(uint64(bytes)) }

func bits(perSecond float64) string { return number(perSecond/1e6) + " Mbit" }
