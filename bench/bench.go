package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// options are what the command line asks for.
type options struct {
	entries int
	length  time.Duration // of one measurement of a flood
	rounds  int
	names   int
	only    []string      // measurements; none: all
	limit   time.Duration // of all measurements together

	peerPaths  peerPrograms
	buildPaths buildPaths
}

// bench is one run.
type bench struct {
	options
	out                    io.Writer // for progress
	begun                  time.Time
	dir                    string // for everything; removed at the end
	coredns, safebrowsing  string // the programs
	serverCore, clientCore string // for taskset; "": there is one core only

	names       []string
	queries     string // file of names in the form that dnsperf reads
	asked       []askedPrefix
	google      *google
	folders     map[int]*folder // by entries
	generations map[generationKey]generation
	collisions  map[generationKey][]int // numbers of names that collide
	collides    map[int]bool            // numbers of names that collide with any list

	rows     []row
	compared []peerResult
	notes    []string
	lost     int // queries without an answer, where none should be
}

// measurement is a part of the bench that can be asked for by name. Those with
// the same run are one.
type measurement struct {
	name string
	run  func(*bench, context.Context) error
}

func measurements() []measurement {
	return []measurement{
		{"clean", (*bench).cleanPath},
		{"forward", (*bench).forwarding},
		{"latency", (*bench).latency},
		{"pause", nil}, // by latency, whose servers it uses
		{"memory", (*bench).memory},
		{"scale", (*bench).scale},
		{"router", (*bench).routers},
		{"routerflood", (*bench).routerFloods},
		{"upstream", (*bench).upstream},
		{"builds", (*bench).builds},
		{"peers", (*bench).peers},
	}
}

// onRequest are the measurements that run only if they are named: router and routerflood need
// root, upstream needs CoreDNS's modules from the network, peers their programs, and builds is about
// programs that only the caller knows.
var onRequest = []string{"router", "routerflood", "upstream", "builds", "peers"}

// wants reports whether a measurement is to be run.
func (o *options) wants(name string) bool {
	return len(o.only) == 0 && !slices.Contains(onRequest, name) || slices.Contains(o.only, name)
}

// say prints progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%4.0f s  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// prepare builds the programs and makes what all measurements need.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.begun = time.Now()
	if b.dir, err = os.MkdirTemp("", "safebrowsing-bench-"); err != nil {
		return err
	}
	b.say("building cmd/coredns and cmd/safebrowsing")
	if err := buildPrograms(ctx, b.dir, "./cmd/coredns", "./cmd/safebrowsing"); err != nil {
		return err
	}
	b.coredns, b.safebrowsing = filepath.Join(b.dir, "coredns"), filepath.Join(b.dir, "safebrowsing")
	b.begun = time.Now()
	b.folders = make(map[int]*folder)
	b.generations = make(map[generationKey]generation)
	b.collisions, b.collides = make(map[generationKey][]int), make(map[int]bool)
	b.names = names(b.options.names, 1)
	b.asked = askedPrefixes(b.names)
	b.queries = filepath.Join(b.dir, "queries")
	if err := writeLines(b.queries, "", b.names, "", " A"); err != nil {
		return err
	}
	if b.google, err = newGoogle(); err != nil {
		return err
	}
	return b.divide(ctx)
}

const module = "github.com/coredns-safebrowsing/safebrowsing"

// buildPrograms builds into dir, with the dependencies of their own module and not with
// the bench's, and as a release is built. args are flags of go build and packages.
func buildPrograms(ctx context.Context, dir string, args ...string) (err error) {
	common := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + string(filepath.Separator)}
	build := exec.CommandContext(ctx, "go", append(common, args...)...)
	if build.Dir, err = moduleDir(ctx); err != nil {
		return err
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if slices.Contains(args, routerTags) {
		build.Env = append(build.Env, "GOWORK="+filepath.Join(build.Dir, "deploy/openwrt/go.work"))
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}

// moduleDir returns the directory of the module that is measured.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("finding the sources of %s: %w: run the bench in its repository, with go -C bench run .\n%s", module, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// close ends and removes what prepare made.
func (b *bench) close() {
	if b.google != nil {
		b.google.close()
	}
	os.RemoveAll(b.dir)
}

// divide gives servers the first core that this process may use and all else
// the second one, if there are two.
func (b *bench) divide(ctx context.Context) error {
	self, err := procfs.NewProc(os.Getpid())
	if err != nil {
		return err
	}
	status, err := self.NewStatus()
	if err != nil {
		return err
	}
	cores := status.CpusAllowedList
	if len(cores) < 2 {
		return nil
	}
	b.serverCore, b.clientCore = strconv.FormatUint(cores[0], 10), strconv.FormatUint(cores[1], 10)
	return pin(ctx, self.PID, b.clientCore)
}

// pin moves all threads of a process to cores.
func pin(ctx context.Context, pid int, cores string) error {
	out, err := exec.CommandContext(ctx, "taskset", "-acp", cores, strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w\n%s", err, out)
	}
	return nil
}

// run runs what was asked for. A measurement that fails does not keep the others
// from being run.
func (b *bench) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("no time was left of %s", b.limit))
	defer cancel()
	for _, m := range measurements() {
		wanted := b.wants(m.name)
		if m.name == "latency" {
			wanted = wanted || b.wants("pause")
		}
		if !wanted || m.run == nil {
			continue
		}
		failed := context.Cause(ctx)
		if failed == nil {
			if failed = m.run(b, ctx); failed != nil && ctx.Err() != nil {
				failed = context.Cause(ctx)
			}
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.name, failed))
			b.add(row{what: m.name, with: "not measured, see below"})
		}
	}
	b.conclude()
	return err
}

// conclude notes what a reader has to know about the figures.
func (b *bench) conclude() {
	if collided, ok := b.collisions[generationKey{b.entries, firstSeed}]; ok {
		n := len(collided)
		b.note("%s of %s names collide with a prefix of %s entries, and are left out where latencies are measured. All servers together asked %s times about such prefixes.",
			count(n), count(len(b.names)), count(b.entries), count(int(b.google.searches.Load())))
	}
	b.note("%s queries were lost.", count(b.lost))
	b.note("%s, %s, cores: %d%s.", model(), runtime.Version(), runtime.NumCPU(), b.division())
	b.note("Taken in %.0f s, building not counted.", time.Since(b.begun).Seconds())
}

func (b *bench) division() string {
	if b.serverCore == "" {
		return ", one core for all"
	}
	return fmt.Sprintf("; servers on core %s, the load and all else on core %s", b.serverCore, b.clientCore)
}

// model names the processor.
func model() string {
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
