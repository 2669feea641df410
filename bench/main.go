// Command bench measures what the plugin costs in the real server: it builds
// cmd/coredns, starts it with and without the plugin in turn, drives it over UDP
// and prints ratios. README.md says what is measured and how to read it.
//
//	core 0: CoreDNS, stock and with the plugin, each from a Corefile of its own
//	core 1: dnsperf or the client of this program, the upstream of forward, and
//	        the Safe Browsing server that hands out the lists
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := benchmark(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func benchmark(ctx context.Context) error {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := requirements(); err != nil {
		return err
	}
	b := &bench{options: o, out: os.Stderr}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	err = b.run(ctx)
	b.print(os.Stdout)
	return err
}

// parse reads the flags. -quick changes the defaults of others.
func parse(args []string) (o options, err error) {
	var all []string
	for _, m := range measurements() {
		all = append(all, m.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.entries, "entries", fullSize, "entries of all lists together")
	flags.DurationVar(&o.length, "time", 2500*time.Millisecond, "how long one server is measured at a time")
	flags.IntVar(&o.rounds, "rounds", 5, "how often the servers take turns")
	flags.IntVar(&o.names, "names", 100_000, "distinct names that are asked for")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "when to give up; building is not counted")
	o.peerPaths = make(peerPrograms)
	flags.Var(o.peerPaths, "peer", "the program of a server for -only peers, as `NAME=PATH`; those in PATH are found")
	o.buildPaths = make(buildPaths)
	flags.Var(o.buildPaths, "build", "another build of cmd/coredns for -only builds, as `NAME=PATH`")
	quick := flags.Bool("quick", false, "40 s for an automatic check: 1,000,000 entries, 2 short rounds, no pause unless -only asks for it")
	only := flags.String("only", "", "measure only these, with commas between: "+strings.Join(all, ", "))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	if *quick {
		for name, value := range map[string]string{"entries": "1000000", "time": "1s", "rounds": "2", "names": "20000"} {
			if !given[name] {
				_ = flags.Set(name, value) // it is a value of the flag
			}
		}
		if len(o.only) == 0 {
			o.only = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "pause" || slices.Contains(onRequest, name) })
		}
	}
	for _, name := range o.only {
		if !slices.Contains(all, name) {
			return o, fmt.Errorf("-only: %q is none of %s", name, strings.Join(all, ", "))
		}
	}
	if flags.NArg() > 0 || o.entries < 1000 || o.entries > 16_000_000 || o.length < 100*time.Millisecond || o.rounds < 1 || o.names < 100 {
		return o, errors.New("-entries takes 1000 to 16,000,000, -time at least 100ms, -rounds at least 1, -names at least 100, and there are no arguments")
	}
	return o, nil
}

// requirements says what is missing on this machine.
func requirements() error {
	if runtime.GOOS != "linux" {
		return errors.New("needs Linux: CPU time and memory are read from /proc")
	}
	for program, debian := range map[string]string{"dnsperf": "dnsperf", "taskset": "util-linux", "go": "golang"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("needs %s, which is not installed (Debian: apt-get install %s)", program, debian)
		}
	}
	return nil
}
