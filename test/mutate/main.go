// Command mutate changes the source one line at a time and reports which changes no test
// finds. The changes are small: a condition is negated, < becomes <=, + becomes -, a
// number grows by one, min becomes max, a statement is left out.
//
//	go run ./test/mutate                     # all changes of the schedule and the verdict
//	go run ./test/mutate -n 20 -seed 1       # 20 of them
//	go run ./test/mutate -full lookup/cache.go
//
// It changes no file of the repository: the go command gets each change as an overlay.
// Results are added to a file, and the next run goes on behind them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// files decide when a server may be asked and whether a name is unsafe.
var files = []string{
	"updater/backoff.go", "updater/clock.go", "updater/clockset.go", "updater/schedule.go", "updater/schedulefile.go",
	"updater/searchclock.go", "updater/attempt.go", "updater/hold.go", "updater/renew.go", "updater/budgetdays.go",
	"lookup/verdict.go", "lookup/cache.go", "lookup/confirm.go", "lookup/checker.go", "lookup/expression.go", "lookup/host.go",
	"lookup/limiter.go", "lookup/share.go",
}

// The results of a change.
const (
	found   = "found"    // a test failed, or took too long
	missed  = "MISSED"   // all tests passed
	invalid = "no build" // the change does not compile
)

func main() {
	n := flag.Int("n", 0, "try so many changes, drawn by the seed; 0: all")
	seed := flag.Uint64("seed", 1, "draws the changes and their order")
	timeout := flag.Duration("timeout", 2*time.Minute, "of the tests of one change")
	full := flag.Bool("full", false, "run the slow tests, too")
	out := flag.String("out", filepath.Join(os.TempDir(), "mutate.txt"), "the file of results; \"\": none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if args := flag.Args(); len(args) > 0 {
		files = args
	}
	missedOnes, err := run(ctx, *n, *seed, *out, tester{*timeout, *full})
	for _, line := range missedOnes {
		fmt.Println(line)
	}
	if err != nil || len(missedOnes) > 0 {
		fmt.Fprintln(os.Stderr, "mutate:", len(missedOnes), "missed;", err)
		os.Exit(1)
	}
}

// run tries the changes that are not in the file of results, and returns the lines of
// those that no test has found.
func run(ctx context.Context, n int, seed uint64, out string, t tester) (missedOnes []string, err error) {
	var all []change
	for _, file := range files {
		changes, err := changesOf(file)
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if n > 0 {
		all = all[:min(n, len(all))]
	}
	known, err := results(out)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int)
	for i, c := range all {
		result := known[c.String()]
		if result == "" {
			if result, err = t.try(ctx, c); err != nil {
				return missedOnes, err
			}
			if err := note(out, result, c); err != nil {
				return missedOnes, err
			}
		}
		if counts[result]++; result == missed {
			missedOnes = append(missedOnes, c.String())
		}
		fmt.Fprintf(os.Stderr, "%d of %d: %s: %s\n", i+1, len(all), result, c)
	}
	fmt.Fprintf(os.Stderr, "%d found, %d missed, %d do not compile\n", counts[found], counts[missed], counts[invalid])
	return missedOnes, nil
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

// note adds a result to the file.
func note(path, result string, c change) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\t%s\n", result, c)
	return err
}

// tester runs the tests of the package that a change is in.
type tester struct {
	timeout time.Duration
	full    bool
}

// try returns the result of a change. The tests that are in the package itself come first:
// they build in a third of the time, and find most changes.
func (t tester) try(ctx context.Context, c change) (result string, err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(c.file))
	if err := os.WriteFile(changed, c.source(), 0o600); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	if err := overlay(replace, changed, c.file); err != nil {
		return "", err
	}
	outside, err := outsideTests(filepath.Dir(c.file))
	if err != nil {
		return "", err
	}
	if len(outside) > 0 {
		inside := maps.Clone(replace)
		if err := overlay(inside, "", outside...); err != nil { // leaves the files out
			return "", err
		}
		if result, err = t.test(ctx, dir, c, inside); err != nil || result != missed {
			return result, err
		}
	}
	return t.test(ctx, dir, c, replace)
}

// overlay puts content, the path of a file, in the place of files.
func overlay(replace map[string]string, content string, files ...string) error {
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		replace[path] = content
	}
	return nil
}

// outsideTests returns the test files of a folder that are in a package of their own.
func outsideTests(dir string) (outside []string, err error) {
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, test := range tests {
		tree, err := parser.ParseFile(token.NewFileSet(), test, nil, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(tree.Name.Name, "_test") {
			outside = append(outside, test)
		}
	}
	return outside, nil
}

// test runs the tests with some files replaced. dir is for files of its own.
func (t tester) test(ctx context.Context, dir string, c change, replace map[string]string) (result string, err error) {
	raw, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return "", err
	}
	// A change may make a test take all memory, or loop: both have an end.
	args := []string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-timeout", t.timeout.String()}
	if !t.full {
		args = append(args, "-short")
	}
	command := exec.CommandContext(ctx, "go", append(args, "./"+filepath.Dir(c.file))...)
	command.Env = append(os.Environ(), "GOMEMLIMIT=1GiB")
	output, err := command.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return missed, nil
	case strings.Contains(string(output), "[build failed]") || strings.Contains(string(output), "[setup failed]"):
		return invalid, nil
	}
	return found, nil
}
