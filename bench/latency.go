package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

const (
	loadRate = 2000 // queries a second of the fixed load

	// untilContact is later than the first contact of a server that has just
	// been started, which is at random within a minute.
	untilContact = 66 * time.Second
)

// latency measures a load at a fixed rate: how long answers take without and with
// the plugin, and the longest of them while all lists are replaced. One server
// does for both: until its first update is due the latencies are measured.
func (b *bench) latency(ctx context.Context) error {
	c := &catalog{waits: []time.Duration{neverDue}}
	if b.wants("pause") {
		c.waits = []time.Duration{max(untilContact, b.latencyTime()+untilContact/4), updateEvery}
		c.news = make(chan time.Time, 16)
	}
	for _, seed := range []uint64{firstSeed, secondSeed} {
		g, err := b.generation(b.entries, seed)
		if err != nil {
			return err
		}
		c.generations = append(c.generations, g)
	}
	f, err := b.fill(ctx, "lists-replaced", b.entries, c)
	if err != nil {
		return err
	}
	servers, stop, err := b.startAll(ctx,
		spec{name: "stock", tail: template, cores: b.serverCore},
		spec{name: "plugin", folder: f, tail: template, cores: b.serverCore})
	if err != nil {
		return err
	}
	defer stop()
	for _, v := range servers {
		if _, err := b.dnsperf(ctx, b.clientCore, v, 0); err != nil {
			return err
		}
	}
	if b.wants("latency") {
		if err := b.percentiles(ctx, "template", servers); err != nil {
			return err
		}
	}
	if b.wants("pause") {
		if err := b.pauses(ctx, servers[0], servers[1], c.news); err != nil {
			return err
		}
	}
	return b.google.took(c)
}

// latencyTime is how long percentiles takes.
func (b *bench) latencyTime() time.Duration {
	if !b.wants("latency") {
		return 0
	}
	return time.Duration(2*b.rounds) * (b.latencyLength() + lastAnswers/10)
}

// latencyLength is how long each server is measured in a round: ten seconds are
// 20,000 queries: 200 are beyond the 99th percentile.
func (b *bench) latencyLength() time.Duration { return b.length * 8 / 5 }

// percentiles lets servers take turns at a load of clean names. What answers is in the rows.
func (b *bench) percentiles(ctx context.Context, answers string, servers []*server) error {
	b.say("latency at %d queries a second: %d rounds", loadRate, b.rounds)
	names := b.clean()
	p50, p99 := make([]sample, len(servers)), make([]sample, len(servers))
	for round := range b.rounds {
		for _, i := range order(round, len(servers)) {
			shots, err := shoot(ctx, servers[i].address(), names, loadRate, b.latencyLength())
			if err != nil {
				return err
			}
			ascending, missing := latencies(shots)
			b.lost += missing
			p50[i] = append(p50[i], milliseconds(percentile(ascending, 0.5)))
			p99[i] = append(p99[i], milliseconds(percentile(ascending, 0.99)))
		}
	}
	if ctx.Err() != nil { // some rounds are cut short
		return ctx.Err()
	}
	what := fmt.Sprintf("%s at %s queries a second", answers, count(loadRate))
	b.compare(what+": p50, ms", "%.3f", p50[0], p50[1], "")
	b.compare(what+": p99, ms", "%.3f", p99[0], p99[1], "× 1.05")
	return nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

const (
	window      = 5 * time.Second        // that is looked at with an update, and without
	early       = 200 * time.Millisecond // by how much the window begins before the lists are asked for
	updateEvery = 12 * time.Second       // minimum wait between updates: room for both windows
	updates     = 3                      // on each number of cores
)

// pauses measures the longest latency, the CPU and the memory of full updates
// under load. The server runs on its core first, where the update and queries
// compete, then on both.
func (b *bench) pauses(ctx context.Context, stock, plugin *server, news <-chan time.Time) error {
	b.say("longest latencies and memory while %s entries are replaced (the first update may take a minute to come)", count(b.entries))
	base, err := b.undisturbed(ctx, stock)
	if err != nil {
		return err
	}
	if err := resetPeak(plugin.proc); err != nil {
		return err
	}
	cores := []string{b.serverCore}
	if b.serverCore != "" {
		cores = append(cores, b.serverCore+","+b.clientCore)
	}
	for i, c := range cores {
		if i > 0 {
			if err := pin(ctx, plugin.proc.PID, c); err != nil {
				return err
			}
		}
		if err := b.pause(ctx, plugin, i+1, news); err != nil {
			return err
		}
		m, err := memoryOf(plugin.proc)
		if err != nil {
			return err
		}
		if i == 0 {
			goal := ""
			if b.entries == fullSize {
				goal = "goal + 32 MiB"
			}
			b.add(row{fmt.Sprintf("%s entries replaced under load: resident at the peak, MiB", count(b.entries)),
				fmt.Sprintf("%.1f", base.peak), fmt.Sprintf("%.1f", m.peak), fmt.Sprintf("%+.1f", m.peak-base.peak), goal})
		}
	}
	return nil
}

// undisturbed measures the server without the plugin for a window.
func (b *bench) undisturbed(ctx context.Context, stock *server) (memory, error) {
	if err := resetPeak(stock.proc); err != nil {
		return memory{}, err
	}
	shots, err := shoot(ctx, stock.address(), b.clean(), loadRate, window)
	if err != nil {
		return memory{}, err
	}
	ascending, missing := latencies(shots)
	b.lost += missing
	b.note("The longest latency of the server without the plugin in %s at %s queries a second: %.2f ms.",
		window, count(loadRate), milliseconds(percentile(ascending, 1)))
	return memoryOf(stock.proc)
}

// pause loads a server without a break until it has updated its lists several
// times, and adds the rows about it.
func (b *bench) pause(ctx context.Context, v *server, cores int, news <-chan time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	most := untilContact + time.Duration(updates)*(updateEvery+window)
	var shots []shot
	var shooting error
	var readings []reading
	var background sync.WaitGroup // both end with ctx
	background.Go(func() { shots, shooting = shoot(ctx, v.address(), b.clean(), loadRate, 2*most) })
	background.Go(func() { readings = readCPU(ctx, v.proc) })
	fetched, err := awaitUpdates(ctx, news, most)
	cancel()
	background.Wait()
	if err = errors.Join(err, shooting); err != nil {
		return err
	}
	var with, without, work sample
	for _, at := range fetched {
		from := at.Add(-early)
		ascending, missing := latencies(within(shots, from, window))
		longest := percentile(ascending, 1)
		if missing > 0 {
			b.note("%d queries were lost while the lists were replaced on %d cores.", missing, cores)
			b.lost += missing
			longest = max(longest, lastAnswers)
		}
		if stall := stalled(within(shots, from, window)); stall > 0 {
			b.note("The load stood still for %s while the lists were replaced on %d cores.", stall.Round(time.Millisecond), cores)
		}
		with = append(with, milliseconds(longest))
		before := from.Add(-window)
		if before.Before(shots[0].at) { // too short
			continue
		}
		ascending, missing = latencies(within(shots, before, window))
		b.lost += missing
		without = append(without, milliseconds(percentile(ascending, 1)))
		work = append(work, (used(readings, from, window) - used(readings, before, window)).Seconds())
	}
	what := fmt.Sprintf("%s entries replaced on %d core(s)", count(b.entries), cores)
	b.add(row{fmt.Sprintf("%s: longest latency in %s, ms; without: before the update", what, window),
		without.spread("%.2f"), with.spread("%.2f"), fmt.Sprintf("%+.2f", with.max()-without.max()), "goal 2 ms"})
	b.add(row{what + ": CPU of the update, s", "", work.spread("%.2f"), "", ""})
	return nil
}

// awaitUpdates waits until lists have been asked for several times, and then for
// the end of the window of the last.
func awaitUpdates(ctx context.Context, news <-chan time.Time, most time.Duration) (fetched []time.Time, err error) {
	tooLong := time.After(most)
	for len(fetched) < updates {
		select {
		case at := <-news:
			if time.Since(at) < time.Second { // not one of before the load began
				fetched = append(fetched, at)
			}
		case <-tooLong:
			return nil, fmt.Errorf("lists were asked for %d times in %s, want %d", len(fetched), most, updates)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case <-time.After(window):
		return fetched, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reading is the CPU time that a process has used until a moment.
type reading struct {
	at  time.Time
	cpu time.Duration
}

// readCPU reads the CPU time of a process again and again until ctx ends.
func readCPU(ctx context.Context, p procfs.Proc) (all []reading) {
	for ctx.Err() == nil {
		cpu, err := cpuTime(p)
		if err != nil {
			return all
		}
		all = append(all, reading{time.Now(), cpu})
		time.Sleep(early / 2)
	}
	return all
}

// used returns the CPU time of a window, as near as readings tell.
func used(readings []reading, from time.Time, length time.Duration) time.Duration {
	var first, last time.Duration
	for _, r := range readings {
		if !r.at.After(from) {
			first = r.cpu
		}
		if !r.at.After(from.Add(length)) {
			last = r.cpu
		}
	}
	return last - first
}
