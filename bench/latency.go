package main

import (
	"context"
	"fmt"
	"time"
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
