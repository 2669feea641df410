package main

import (
	"math"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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

// sources are the defaults of a plan.
var sources = []source{
	{"lines", 10e6, "", "an access provider", func(n *provision) *float64 { return &n.Lines }},
	{"queries", 4000, "a line and day", "what a DNS filter sells as fair use a person", func(n *provision) *float64 { return &n.Queries }},
	{"peak", 2.2, "times the mean", "an estimate", func(n *provision) *float64 { return &n.Peak }},
	{"names", 100e6, "different ones a day", "an estimate: ten of a line's own", func(n *provision) *float64 { return &n.Names }},
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
