package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

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
	cmd := exec.CommandContext(ctx, "dnsperf", args...)
	if cores != "" {
		cmd = exec.CommandContext(ctx, "taskset", append([]string{"-c", cores, "dnsperf"}, args...)...)
	}
	out, err := cmd.CombinedOutput()
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
