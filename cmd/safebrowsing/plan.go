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
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
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
			if from := c.String("from"); from == "" {
				if !c.IsSet("names") && n.Zipf == 0 {
					n.Names = namesOfALine * n.Lines
				}
			} else {
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

// provision is what a plan is made from. All numbers are positive.
type provision struct {
	Lines    float64 `json:"lines"`
	Queries  float64 `json:"queries"`  // of a line, a day
	Peak     float64 `json:"peak"`     // queries a second at the peak, in units of the mean
	Names    float64 `json:"names"`    // different ones a day; with Zipf those that exist
	Popular  float64 `json:"popular"`  // share of the different names that are asked for in every life of an answer
	Zipf     float64 `json:"zipf"`     // exponent of the popularity of names; 0: by Popular
	Life     float64 `json:"life"`     // of an answer that a name is harmless, in hours
	Entries  float64 `json:"entries"`  // of all threat lists
	Sums     float64 `json:"sums"`     // new expressions of a new name
	Changed  float64 `json:"changed"`  // share of the entries that an update replaces
	Updates  float64 `json:"updates"`  // a day
	Regions  float64 `json:"regions"`  // with a relay each
	Nodes    float64 `json:"nodes"`    // CoreDNS servers
	CPU      float64 `json:"cpu"`      // µs of a core that a query takes
	CacheCPU float64 `json:"cachecpu"` // the same of a packet cache in front
	Misses   float64 `json:"misses"`   // share of the queries that the packet cache passes on
	Price    float64 `json:"price"`    // of a search, in US-$
}

// Bytes of an entry, see bench/README.md: 10 million take 13.9 MB on the wire and 18.7 MiB in memory, and 40 MiB
// while a full update is under way. A change in a partial update takes some 20 bytes, an addition and
// a removal each.
const (
	wireBytes, memoryBytes, peakBytes = 1.39, 1.96, 4.2
	changeBytes                       = 20
)

// planned is what a network needs.
type planned struct {
	Network     provision `json:"network"`
	Rate        float64   `json:"queries_per_second"`
	PeakRate    float64   `json:"queries_per_second_at_the_peak"`
	Cores       float64   `json:"cores"`              // busy at the peak
	CoresBehind float64   `json:"cores_behind_cache"` // the same behind a packet cache
	CacheCores  float64   `json:"cache_cores"`        // of that cache
	Memory      float64   `json:"memory"`             // of a node for lists, bytes
	PeakMemory  float64   `json:"memory_at_the_peak"` // the same during a full update
	Full        float64   `json:"full_update_bytes"`  // of a node
	Daily       float64   `json:"update_bytes_a_day"` // of a node
	FleetRate   float64   `json:"update_bits_per_second"`
	ColdRate    float64   `json:"cold_start_bits_per_second"` // all nodes within a minute
	OneIn       float64   `json:"one_name_in"`                // shares a prefix with a list
	Tiers       []tier    `json:"tiers"`
	Saved       tier      `json:"one_more_hour_saves"` // of the first tier
	Measured    *measured `json:"measured,omitempty"`  // with -from
}

// tier is a way to ask the service, and what it costs.
type tier struct {
	Name     string  `json:"name"`
	Caches   float64 `json:"caches"` // that ask the service
	Searches float64 `json:"searches"`
	Rate     float64 `json:"searches_per_second"`
	Dollars  float64 `json:"dollars_a_day"`
	Line     float64 `json:"dollars_a_line_and_year"`
}

// plan computes what a network needs.
func (n provision) plan() planned {
	const day = 86400
	mean := n.Lines * n.Queries / day
	p := planned{
		Network: n, Rate: mean, PeakRate: mean * n.Peak,
		Memory: n.Entries * memoryBytes, PeakMemory: n.Entries * peakBytes, Full: n.Entries * wireBytes,
		Daily: n.Entries * n.Changed * changeBytes * n.Updates, OneIn: 1 / n.collides(),
	}
	p.Cores = p.PeakRate * n.CPU / 1e6
	p.CoresBehind, p.CacheCores = p.Cores*n.Misses, p.PeakRate*n.CacheCPU/1e6
	p.FleetRate, p.ColdRate = p.Daily*n.Nodes*8/day, p.Full*n.Nodes*8/60
	p.Tiers = []tier{
		n.tier("central relays on one Redis", 1, n.Life),
		n.tier("a relay in each region, no centre", n.Regions, n.Life),
		n.tier("no relays: each node asks", n.Nodes, n.Life),
	}
	more := n.tier("", 1, n.Life+1)
	p.Saved = n.costing(tier{Name: "answers that live one hour more", Caches: 1, Searches: p.Tiers[0].Searches - more.Searches})
	return p
}

// collides returns the share of names with an expression whose prefix of four bytes is in a list.
func (n provision) collides() float64 {
	return 1 - math.Pow(1-1/math.Exp2(32), n.Entries*n.Sums)
}

// tier returns what it costs when this number of caches ask the service, for answers that live for hours.
func (n provision) tier(name string, caches, hours float64) tier {
	asked := n.Names * (1 - n.Popular) // once
	asked += n.Names * n.Popular * max(1, 24/hours) * caches
	if n.Zipf > 0 {
		asked = n.byZipf(caches, hours)
	}
	return n.costing(tier{Name: name, Caches: caches, Searches: n.collides() * asked})
}

func (n provision) costing(t tier) tier {
	t.Rate, t.Dollars = t.Searches/86400, t.Searches*n.Price
	t.Line = t.Dollars * 365 / n.Lines
	return t
}

// byZipf returns how often a day a name is asked for that is in no cache, if each name collided. The name
// of rank i has the share i^-Zipf of all queries, and they come at random: between two searches of
// a cache for a name an answer lives, and then the next query is waited for.
func (n provision) byZipf(caches, hours float64) (asked float64) {
	days := hours / 24
	total := 0.0
	n.eachRank(func(share, ranks float64) { total += share * ranks })
	n.eachRank(func(share, ranks float64) {
		rate := n.Lines * n.Queries * share / total / caches // a day, of one cache
		asked += ranks * caches * rate / (1 + rate*days)
	})
	return asked
}

// eachRank calls do with the weight of a rank, and how many ranks have about that: one, or beyond the
// 10,000th those within 1 %.
func (n provision) eachRank(do func(share, ranks float64)) {
	for at := 1.0; at <= n.Names; {
		ranks := min(max(1, math.Floor(at/10_000*100)), n.Names-at+1)
		do(math.Pow(at+(ranks-1)/2, -n.Zipf), ranks)
		at += ranks
	}
}

// source is where a default comes from.
type source struct {
	flag  string
	value float64
	unit  string
	from  string
	field func(n *provision) *float64
}

// namesOfALine is how many different names a line asks for that no other does.
const namesOfALine = 10

// sources are the defaults of a plan.
var sources = []source{
	{"lines", 10e6, "", "an access provider", func(n *provision) *float64 { return &n.Lines }},
	{"queries", 4000, "a line and day", "what a DNS filter sells as fair use a person", func(n *provision) *float64 { return &n.Queries }},
	{"peak", 2.2, "times the mean", "an estimate", func(n *provision) *float64 { return &n.Peak }},
	{"names", namesOfALine * 10e6, "different ones a day", "an estimate: ten of a line's own", func(n *provision) *float64 { return &n.Names }},
	{"popular", 0.05, "of them", "an estimate; they are asked for in every life of an answer", func(n *provision) *float64 { return &n.Popular }},
	{"life", 1, "hours", "cloud.google.com/web-risk/docs/caching: of its example", func(n *provision) *float64 { return &n.Life }},
	{"entries", 7.1e6, "of threat lists", "Google's lists of social engineering and malware", func(n *provision) *float64 { return &n.Entries }},
	{"sums", 2.4, "new expressions of a new name", "an estimate: most names share their domain with others", func(n *provision) *float64 { return &n.Sums }},
	{"changed", 0.001, "of a list, an update", "an estimate", func(n *provision) *float64 { return &n.Changed }},
	{"updates", 48, "a day", "the minimum wait that Google sends: 30 minutes", func(n *provision) *float64 { return &n.Updates }},
	{"regions", 4, "", "an access provider", func(n *provision) *float64 { return &n.Regions }},
	{"nodes", 500, "CoreDNS servers", "an access provider", func(n *provision) *float64 { return &n.Nodes }},
	{"cpu", 23, "µs a query", "43,100 forwarded, 89,900 cached a core and second: go -C bench run . -only peers", func(n *provision) *float64 { return &n.CPU }},
	{"cachecpu", 8, "µs a query", "the same: dnsdist answers 124,000 from its cache", func(n *provision) *float64 { return &n.CacheCPU }},
	{"misses", 0.15, "of the queries", "an estimate for a packet cache in front", func(n *provision) *float64 { return &n.Misses }},
	{"price", 1.0 / lookup.SearchesPerDollar, "US-$ a search", "cloud.google.com/web-risk/pricing", func(n *provision) *float64 { return &n.Price }},
}
