package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// The list of each peer. Its names are not among those that are asked for in floods.
const (
	listedNames = 1_000_000
	listedSeed  = 77
	listedFirst = "listed-" // before each name
)

// peerLimit is how long a peer may take to load its list.
const peerLimit = 10 * time.Minute

// peerResult is what was measured of a peer.
type peerResult struct {
	what              string
	forwarded, cached sample  // us of CPU a query
	memory            float64 // MiB, after the flood without a cache
	first             float64 // s from the start until a name of the list is blocked
}

// peers measures each peer whose program is there, and ours: how much CPU time a query takes that
// it forwards, and one that it has in its cache.
func (b *bench) peers(ctx context.Context) error {
	ns, err := newNameServer()
	if err != nil {
		return err
	}
	defer ns.close()
	var found []peer
	for _, p := range peers() {
		if path := b.peerProgram(p.name); path == "" {
			b.note("%s is not measured: its program is not there. -peer %s=PATH names it.", p.what, p.name)
			continue
		}
		found = append(found, p)
		if err := writeList(b.listOf(p), p); err != nil {
			return err
		}
	}
	results := make([]peerResult, len(found))
	for i, p := range found {
		results[i].what = p.what
	}
	for _, cached := range []bool{false, true} {
		if err := b.floodPeers(ctx, found, results, place{upstream: ns.port, cached: cached}); err != nil {
			return err
		}
	}
	b.compared = results
	return nil
}

// peerProgram returns the path of a peer's program, "" if it is not on this machine.
func (b *bench) peerProgram(name string) string {
	if name == ours {
		return b.coredns
	}
	if path := b.peerPaths[name]; path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

func (b *bench) listOf(p peer) string { return filepath.Join(b.dir, "list-"+p.name) }

// writeList writes the list of a peer in its own format.
func writeList(file string, p peer) error {
	before, after, _ := strings.Cut(p.entry, "%s")
	return writeLines(file, p.header, names(listedNames, listedSeed), before+listedFirst, after)
}

// floodPeers starts the peers, floods them in turns, and adds what it measures to the results.
func (b *bench) floodPeers(ctx context.Context, found []peer, results []peerResult, at place) error {
	var servers []*server
	defer func() {
		for _, v := range servers {
			v.stop()
		}
	}()
	for i, p := range found {
		b.say("peers: %s", p.what)
		v, err := b.startPeer(ctx, p, at)
		if err != nil {
			return fmt.Errorf("%s: %w", p.what, err)
		}
		servers = append(servers, v)
		results[i].first = cmp.Or(results[i].first, v.startup.Seconds())
	}
	b.say("peers: %d rounds", b.rounds)
	c, err := b.floodServers(ctx, b.clientCore, b.rounds, servers)
	if err != nil {
		return err
	}
	for i, v := range servers {
		if at.cached {
			results[i].cached = c.cpu[i]
			continue
		}
		m, err := memoryOf(v.proc)
		if err != nil {
			return err
		}
		results[i].forwarded, results[i].memory = c.cpu[i], m.now
	}
	return nil
}

// startPeer starts a peer and waits until it blocks a name of its list.
func (b *bench) startPeer(ctx context.Context, p peer, at place) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, p.name+"-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	at.dir, at.config, at.list = dir, filepath.Join(dir, "config"), b.listOf(p)
	at.port, at.web = ports[0], ports[1]
	if err := os.WriteFile(at.config, []byte(p.fill(p.config, at)), 0o600); err != nil {
		return nil, err
	}
	if p.listAt != "" {
		file := filepath.Join(dir, p.listAt)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.Link(at.list, file)); err != nil {
			return nil, err
		}
	}
	var args []string
	for _, a := range p.args {
		args = append(args, p.fill(a, at))
	}
	v := &server{spec: spec{name: p.name}, port: at.port, dir: dir}
	v.cmd = onCores(ctx, b.serverCore, b.peerProgram(p.name), args...)
	v.cmd.Env = environment()
	begun := time.Now()
	if err := v.launch(); err != nil {
		return nil, err
	}
	if err := v.awaitBlocked(ctx); err != nil {
		v.stop()
		return nil, fmt.Errorf("%w\n%s", err, v.output())
	}
	v.startup = time.Since(begun)
	return v, nil
}

// awaitBlocked waits until a name of the list is blocked.
func (v *server) awaitBlocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, peerLimit, errors.New("it blocks nothing"))
	defer cancel()
	name := listedFirst + names(1, listedSeed)[0] + "."
	for !v.blocks(name) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.ended:
			return errors.New("it has ended")
		case <-time.After(5 * startPoll):
		}
	}
	return nil
}

func (v *server) blocks(name string) bool {
	client := &dns.Client{Timeout: 200 * time.Millisecond}
	r, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), v.address())
	return err == nil && r.Rcode == dns.RcodeNameError
}

// printPeers prints the results as a table, if there are any. The first one is ours.
func printPeers(w io.Writer, all []peerResult) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "| server, 1,000,000 names | forwarded: CPU a query, µs | queries per core-second | ours is | cached: CPU a query, µs | queries per core-second | ours is | resident, MiB | first blocked answer, s |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, r := range all {
		fmt.Fprintf(w, "| %s | %s | %s | %.1f | %.2f |\n", r.what, columns(r.forwarded, all[0].forwarded), columns(r.cached, all[0].cached), r.memory, r.first)
	}
	fmt.Fprintln(w)
}

// columns are CPU time a query, queries per core-second, and how many times as many ours answers.
func columns(cpu, ours sample) string {
	return fmt.Sprintf("%s | %s | %s", cpu.spread("%.2f"), cpu.inverse(1e6).spread("%.0f"), cpu.ratios(ours).times())
}
