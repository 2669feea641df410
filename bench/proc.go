package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
)

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
