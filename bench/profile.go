package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled are the loads of which cmd/coredns/default.pgo is made: a server that answers by
// itself, one that forwards nearly every query, and one that has nearly every answer in its cache.
// All have the plugins that most Corefiles have. %s is the address of the name server.
var profiled = []struct{ name, tail string }{
	{"template", "prometheus 127.0.0.1:0\n\terrors\n\t" + template},
	{"cache, forward", "prometheus 127.0.0.1:0\n\terrors\n\t" + forwarding},
	{"cached", "prometheus 127.0.0.1:0\n\terrors\n\tcache {\n\t\tsuccess 262144\n\t}\n\tforward . %s"},
}

// minSamples is how many samples a profile has at least. A second of CPU time has 100.
const minSamples = 500

// writeProfileOf floods the server under each of the loads, and writes one CPU profile of all,
// as the compiler reads it, to the file.
func (b *bench) writeProfileOf(ctx context.Context, file string) error {
	f, ns, err := b.scene(ctx)
	if err != nil {
		return err
	}
	defer ns.close()
	var all []*profile.Profile
	for _, load := range profiled {
		b.say("a profile of %s: %s", load.name, b.profileTime())
		p, err := b.profileOf(ctx, spec{name: load.name, folder: f, tail: strings.ReplaceAll(load.tail, "%s", ns.address), cores: b.serverCore})
		if err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
		if samples(p) < minSamples {
			return fmt.Errorf("%s: only %d samples, want %d: give it more -time or -rounds", load.name, samples(p), minSamples)
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	if merged, err = slim(merged); err != nil {
		return err
	}
	return writeProfile(file, merged)
}

// profileTime is how long each load is profiled: as long as a server is measured in all rounds.
func (b *bench) profileTime() time.Duration { return time.Duration(b.rounds) * b.length }

// profileOf floods one server and returns its CPU profile.
func (b *bench) profileOf(ctx context.Context, s spec) (*profile.Profile, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s.head = fmt.Sprintf("pprof 127.0.0.1:%d\n\t", ports[0])
	v, err := b.start(ctx, s)
	if err != nil {
		return nil, err
	}
	defer v.stop()
	if _, err := b.dnsperf(ctx, b.clientCore, v, 0); err != nil { // what a start does is not of interest
		return nil, err
	}
	flooded := make(chan error, 1)
	go func() {
		_, err := b.dnsperf(ctx, b.clientCore, v, b.profileTime()+time.Second)
		flooded <- err
	}()
	p, err := fetchProfile(ctx, fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/profile?seconds=%.0f", ports[0], b.profileTime().Seconds()))
	if failed := <-flooded; err == nil {
		err = failed
	}
	return p, err
}

func fetchProfile(ctx context.Context, url string) (*profile.Profile, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		return nil, fmt.Errorf("the profile: %s: %s", r.Status, text)
	}
	return profile.Parse(r.Body)
}

// samples returns how many samples a CPU profile has.
func samples(p *profile.Profile) (n int64) {
	for _, s := range p.Sample {
		n += s.Value[0]
	}
	return n
}

// rare is the share of all samples below which an edge of the call graph is left out. The
// compiler takes the edges that make up 99 % of all as hot.
const rare = 0.0002

// slim returns what the compiler reads of a CPU profile: calls and how often they were seen,
// by the names of functions and lines in them. It has no stacks, files, addresses or times, so
// that the file is small and tells nothing of the machine.
func slim(p *profile.Profile) (*profile.Profile, error) {
	thin := newThinProfile()
	least := max(2, int64(rare*float64(samples(p))))
	counts := callsOf(p)
	for _, c := range sortedCalls(counts) {
		if counts[c] >= least {
			thin.add(c, counts[c])
		}
	}
	return thin.p, thin.p.CheckValid()
}

// writeProfile writes a profile, compressed.
func writeProfile(file string, p *profile.Profile) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := p.Write(out); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
