// Command mutate changes the source one line at a time and reports which changes no test
// finds. The changes are small: a condition is negated, < becomes <=, + becomes -, a
// number grows by one, min becomes max, a statement is left out.
//
//	go run ./test/mutate                     # all changes of the schedule and the verdict
//	go run ./test/mutate -n 20 -seed 1       # 20 of them
//	go run ./test/mutate -full lookup/cache.go
//
// It changes no file of the repository: the go command gets the changed ones as an overlay.
// The changes of a package are compiled once, together; only those of constants are
// compiled one by one. A change is tried with the tests that reach it, first with those that
// take no time. Results are added to a file, and the next run goes on behind them: remove the
// file after an edit. With TMPDIR in memory, such as /dev/shm, tests do not wait for the disk.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// files decide when a server may be asked and whether a name is unsafe.
var files = []string{
	"updater/backoff.go", "updater/clock.go", "updater/clockset.go", "updater/moment.go", "updater/schedule.go", "updater/schedulefile.go",
	"updater/searchclock.go", "updater/attempt.go", "updater/hold.go", "updater/renew.go", "updater/budgetdays.go",
	"lookup/verdict.go", "lookup/cache.go", "lookup/confirm.go", "lookup/search.go", "lookup/checker.go", "lookup/expression.go", "lookup/host.go",
	"lookup/scan.go", "lookup/limiter.go", "lookup/share.go",
}

// The results of a change.
const (
	found   = "found"    // a test failed
	endless = "timeout"  // a test took too long, or all memory
	missed  = "MISSED"   // all tests passed
	invalid = "no build" // the change does not compile
)

// options are the flags of the command.
type options struct {
	n       int
	seed    uint64
	timeout time.Duration
	full    bool
	out     string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 0, "try so many changes, drawn by the seed; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "draws the changes and their order")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Minute, "of the tests of one change")
	flag.BoolVar(&o.full, "full", false, "run the slow tests, too, for changes that the others do not find")
	flag.StringVar(&o.out, "out", filepath.Join(os.TempDir(), "mutate.txt"), "the file of results; \"\": none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if args := flag.Args(); len(args) > 0 {
		files = args
	}
	missedOnes, err := o.run(ctx)
	for _, line := range missedOnes {
		fmt.Println(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if err != nil || len(missedOnes) > 0 {
		os.Exit(1)
	}
}

// run tries the changes that are not in the file of results, and returns the lines of
// those that no test has found.
func (o options) run(ctx context.Context) (missedOnes []string, err error) {
	all, packages, err := changesOf(files)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if o.n > 0 {
		all = all[:min(o.n, len(all))]
	}
	known, err := results(o.out)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if err := o.tryPackage(ctx, p, all, known); err != nil {
			return nil, err
		}
	}
	counts := make(map[string]int)
	for _, c := range all {
		result := known[c.String()]
		if counts[result]++; result == missed {
			missedOnes = append(missedOnes, c.String())
		}
	}
	fmt.Fprintf(os.Stderr, "%d changes: %d found, %d by the timeout, %d missed, %d do not compile\n",
		len(all), counts[found], counts[endless], counts[missed], counts[invalid])
	slices.Sort(missedOnes)
	return missedOnes, nil
}

// changesOf returns the changes of files and their packages.
func changesOf(files []string) (all []change, packages []*pkg, err error) {
	for _, path := range files {
		dir := filepath.Dir(path)
		i := slices.IndexFunc(packages, func(p *pkg) bool { return p.dir == dir })
		if i < 0 {
			p, err := load(dir)
			if err != nil {
				return nil, nil, err
			}
			i, packages = len(packages), append(packages, p)
		}
		before := len(all)
		for _, f := range packages[i].files {
			if f.path == path {
				all = append(all, f.changes()...)
			}
		}
		if len(all) == before {
			return nil, nil, fmt.Errorf("%s: no such file, or nothing to change", path)
		}
	}
	return all, packages, nil
}

// tryPackage adds the results of the changes in a package to known.
func (o options) tryPackage(ctx context.Context, p *pkg, all []change, known map[string]string) error {
	var left []change
	for _, c := range all {
		if filepath.Dir(c.file.path) != p.dir || known[c.String()] != "" {
			continue
		}
		if p.compiles(c) {
			left = append(left, c)
		} else if err := o.note(known, invalid, c); err != nil {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newSuite(ctx, p, left, o.timeout, o.full, dir)
	if err != nil {
		return err
	}
	for i, c := range left {
		result, err := s.try(ctx, c)
		if err != nil {
			return err
		}
		if err := o.note(known, result, c); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d of %d: %s: %s\n", i+1, len(left), result, c)
	}
	return nil
}

// results reads the file of results, by change.
func results(path string) (map[string]string, error) {
	known := make(map[string]string)
	f, err := os.Open(path)
	if path == "" || os.IsNotExist(err) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if result, change, ok := strings.Cut(lines.Text(), "\t"); ok {
			known[change] = result
		}
	}
	return known, nil
}

// note adds a result to known and to the file.
func (o options) note(known map[string]string, result string, c change) error {
	known[c.String()] = result
	if o.out == "" {
		return nil
	}
	f, err := os.OpenFile(o.out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\t%s\n", result, c)
	return err
}
