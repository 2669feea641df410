package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// fullSize is the size that the bars are for.
const fullSize = 10_000_000

// settle is how long a server is left alone before its memory is read.
const settle = 200 * time.Millisecond

// footprint is what starts of one server cost.
type footprint struct {
	startup            sample // s
	idle, loaded, peak sample // MiB
}

// memory measures starts from disk: how long until lists are in force, and what
// the process holds idle and after a flood, without the plugin and with lists of
// several sizes.
func (b *bench) memory(ctx context.Context) error {
	sizes := []int{0, b.entries / 10, b.entries * 4 / 10, b.entries}
	specs := make([]spec, len(sizes))
	for i, entries := range sizes {
		specs[i] = spec{name: fmt.Sprintf("with %d entries", entries), tail: template, cores: b.serverCore}
		if entries == 0 {
			continue
		}
		f, err := b.folder(ctx, entries)
		if err != nil {
			return err
		}
		specs[i].folder = f
	}
	b.say("starts and memory: %d rounds", b.rounds)
	prints := make([]footprint, len(specs))
	for round := range b.rounds {
		for _, i := range order(round, len(specs)) {
			if err := b.footprint(ctx, specs[i], round == 0, &prints[i]); err != nil {
				return err
			}
		}
	}
	b.footprintRows(sizes, prints)
	return nil
}

// footprint starts a server once, and floods it if flood is set.
func (b *bench) footprint(ctx context.Context, s spec, flood bool, p *footprint) error {
	v, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer v.stop()
	p.startup = append(p.startup, v.startup.Seconds())
	time.Sleep(settle)
	m, err := memoryOf(v.proc)
	if err != nil {
		return err
	}
	p.idle = append(p.idle, m.now)
	if !flood {
		return nil
	}
	if _, err := b.dnsperf(ctx, b.clientCore, v, 0); err != nil {
		return err
	}
	if _, err := b.dnsperf(ctx, b.clientCore, v, b.length); err != nil {
		return err
	}
	if m, err = memoryOf(v.proc); err == nil {
		p.loaded, p.peak = append(p.loaded, m.now), append(p.peak, m.peak)
	}
	return err
}

func (b *bench) footprintRows(sizes []int, prints []footprint) {
	stock := prints[0]
	for i := 1; i < len(sizes); i++ {
		p, size := prints[i], count(sizes[i])
		goal, bar := "", ""
		if sizes[i] == fullSize {
			goal, bar = "goal + 16 MiB", "+ 0.1 s"
		}
		memory := func(what string, without, with sample, goal string) {
			b.add(row{fmt.Sprintf("%s entries, resident %s, MiB", size, what), without.spread("%.1f"), with.spread("%.1f"),
				fmt.Sprintf("%+.1f", with.median()-without.median()), goal})
		}
		memory("when idle", stock.idle, p.idle, goal)
		memory("after a flood", stock.loaded, p.loaded, goal)
		memory("at most since the start", stock.peak, p.peak, "")
		b.add(row{size + " entries, start until in force, s", stock.startup.spread("%.3f"), p.startup.spread("%.3f"),
			fmt.Sprintf("%+.3f", p.startup.median()-stock.startup.median()), bar})
	}
}

// cpuTime returns the CPU time that a process has used in user and kernel mode,
// in steps of 10 ms.
func cpuTime(p procfs.Proc) (time.Duration, error) {
	stat, err := p.Stat()
	if err != nil {
		return 0, err
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// memory is what a process holds in memory, in MiB.
type memory struct {
	now  float64 // VmRSS
	peak float64 // VmHWM, since the start or the last resetPeak
}

// memoryOf returns an error for a process that has ended and is not yet waited
// for: it holds no memory, and its status has no sizes.
func memoryOf(p procfs.Proc) (memory, error) {
	status, err := p.NewStatus()
	if err != nil {
		return memory{}, err
	}
	if status.VmRSS == 0 || status.VmHWM == 0 {
		return memory{}, errors.New("no VmRSS or no VmHWM in the status of a process")
	}
	const mib = 1 << 20
	return memory{now: float64(status.VmRSS) / mib, peak: float64(status.VmHWM) / mib}, nil
}

// resetPeak restarts VmHWM at VmRSS (man 5 proc_pid_clear_refs). procfs only
// reads.
func resetPeak(p procfs.Proc) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID), []byte("5"), 0)
}
