package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// contest is servers that take turns at being flooded. The first is the one
// without the plugin, that the others are held against.
type contest struct {
	cpu  []sample // us a query, by server
	rate []sample // queries a second, by server
}

// flood lets the servers take turns, after each has answered all names once. The
// servers of one contest run together: one that is not asked does nothing.
func (b *bench) flood(ctx context.Context, clientCores string, rounds int, specs ...spec) (*contest, error) {
	servers, stop, err := b.startAll(ctx, specs...)
	if err != nil {
		return nil, err
	}
	defer stop()
	return b.floodServers(ctx, clientCores, rounds, servers)
}

// floodServers is flood with servers that run already.
func (b *bench) floodServers(ctx context.Context, clientCores string, rounds int, servers []*server) (*contest, error) {
	c := &contest{cpu: make([]sample, len(servers)), rate: make([]sample, len(servers))}
	for _, v := range servers {
		if _, err := b.dnsperf(ctx, clientCores, v, 0); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		for _, i := range order(round, len(servers)) {
			t, err := b.measure(ctx, clientCores, servers[i])
			if err != nil {
				return nil, err
			}
			c.cpu[i], c.rate[i] = append(c.cpu[i], t.cpu), append(c.rate[i], t.rate)
		}
	}
	return c, nil
}

// floodRows adds the rows that hold the second server of a contest against the first.
func (b *bench) floodRows(what string, c *contest, bar string) {
	b.compare(what+": CPU a query, µs", "%.2f", c.cpu[0], c.cpu[1], bar)
	b.compare(what+": queries per core-second", "%.0f", c.cpu[0].inverse(1e6), c.cpu[1].inverse(1e6), "")
	b.compare(what+": queries a second", "%.0f", c.rate[0], c.rate[1], "")
}

// cleanPath measures names in no list, with template behind the plugin.
func (b *bench) cleanPath(ctx context.Context) error {
	f, err := b.folder(ctx, b.entries)
	if err != nil {
		return err
	}
	return b.cost(ctx, "template", f, template, "CPU × 1.05, goal × 1.03")
}

// forwarding measures names in no list, with cache and forward behind the plugin.
func (b *bench) forwarding(ctx context.Context) error {
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	return b.cost(ctx, "cache, forward", f, fmt.Sprintf(forwarding, ns.address), "CPU × 1.03")
}

// cost floods the server without the plugin, the one with it, and a control: what a plugin costs that
// does nothing but pass the query on, which is any, for queries of another type than ANY. One more plugin
// in the chain makes the stack deeper, and where it then has to grow once more, which depends on the
// plugins behind, that alone is microseconds.
func (b *bench) cost(ctx context.Context, what string, f *folder, tail, bar string) error {
	b.say("clean path, %s: %d rounds", what, b.rounds)
	c, err := b.flood(ctx, b.clientCore, b.rounds,
		spec{name: "stock", tail: tail, cores: b.serverCore},
		spec{name: "plugin", folder: f, tail: tail, cores: b.serverCore},
		spec{name: "control", tail: "any\n\t" + tail, cores: b.serverCore})
	if err != nil {
		return err
	}
	b.floodRows(what, c, bar)
	b.compare(what+"; control, any instead of the plugin: CPU a query, µs", "%.2f", c.cpu[0], c.cpu[2], "")
	return nil
}

// scaleRounds is how many rounds each number of cores gets.
const scaleRounds = 2

// scale measures the clean path on one core and, if there are two, on both, which
// the load then shares.
func (b *bench) scale(ctx context.Context) error {
	f, err := b.folder(ctx, b.entries)
	if err != nil {
		return err
	}
	cases := []struct{ what, server, client string }{{"1 core", b.serverCore, b.clientCore}}
	if b.serverCore != "" {
		both := b.serverCore + "," + b.clientCore
		cases = append(cases, struct{ what, server, client string }{"2 cores, shared with the load", both, both})
	}
	for _, s := range cases {
		b.say("template on %s", s.what)
		c, err := b.flood(ctx, s.client, scaleRounds,
			spec{name: "stock", tail: template, cores: s.server},
			spec{name: "plugin", folder: f, tail: template, cores: s.server})
		if err != nil {
			return err
		}
		b.compare("template, server on "+s.what+": queries a second", "%.0f", c.rate[0], c.rate[1], "")
	}
	return nil
}

// flood is what dnsperf says about one run.
type flood struct {
	answered int
	lost     int
	rate     float64 // answers a second
	good     float64 // percent of answers that are NOERROR
}

// dnsperf sends as many queries as the server answers, 100 at a time, for length,
// or all names once if that is 0.
func (b *bench) dnsperf(ctx context.Context, cores string, v *server, length time.Duration) (flood, error) {
	args := []string{"-s", "127.0.0.1", "-p", strconv.Itoa(v.port), "-d", b.queries, "-c", "8", "-q", "100", "-T", "1"}
	if length > 0 {
		args = append(args, "-l", strconv.FormatFloat(length.Seconds(), 'f', -1, 64))
	} else {
		args = append(args, "-n", "1")
	}
	out, err := onCores(ctx, cores, "dnsperf", args...).CombinedOutput()
	if err != nil {
		return flood{}, fmt.Errorf("dnsperf: %w\n%s", err, out)
	}
	f, err := parseFlood(string(out))
	if err == nil && f.good < 99 {
		err = fmt.Errorf("only %.1f %% of the answers of CoreDNS %s are NOERROR\n%s", f.good, v.name, out)
	}
	return f, err
}

var (
	answeredLine = regexp.MustCompile(`Queries completed:\s+(\d+)`)
	lostLine     = regexp.MustCompile(`Queries lost:\s+(\d+)`)
	rateLine     = regexp.MustCompile(`Queries per second:\s+([\d.]+)`)
	goodLine     = regexp.MustCompile(`NOERROR \d+ \(([\d.]+)%\)`)
)

func parseFlood(output string) (f flood, err error) {
	numbers := make([]float64, 0, 4)
	for _, line := range []*regexp.Regexp{answeredLine, lostLine, rateLine, goodLine} {
		m := line.FindStringSubmatch(output)
		if m == nil {
			return f, fmt.Errorf("dnsperf prints nothing like %q:\n%s", line, output)
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return f, err
		}
		numbers = append(numbers, n)
	}
	f = flood{answered: int(numbers[0]), lost: int(numbers[1]), rate: numbers[2], good: numbers[3]}
	if f.answered == 0 {
		return f, errors.New("no query was answered")
	}
	return f, nil
}

// turn is one measurement of a flood.
type turn struct {
	cpu  float64 // us of CPU a query
	rate float64 // queries a second
}

// measure floods a server and reads the CPU time that it took. All queries are
// between the two readings; next to nothing else is.
func (b *bench) measure(ctx context.Context, cores string, v *server) (turn, error) {
	before, err := cpuTime(v.proc)
	if err != nil {
		return turn{}, err
	}
	f, err := b.dnsperf(ctx, cores, v, b.length)
	if err != nil {
		return turn{}, err
	}
	after, err := cpuTime(v.proc)
	if err != nil {
		return turn{}, err
	}
	b.lost += f.lost
	return turn{
		cpu:  float64((after - before).Nanoseconds()) / 1000 / float64(f.answered),
		rate: f.rate,
	}, nil
}
