package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all
// architectures that Go knows (man 5 proc_pid_stat).
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that a process has used in user and kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(string(raw))
}

// parseStat reads utime and stime, fields 14 and 15. The name of the program,
// field 2, may hold spaces and brackets.
func parseStat(stat string) (time.Duration, error) {
	_, rest, ok := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, errors.New("stat of a process has too few fields")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * tick, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// memory is what a process holds in memory, in MiB.
type memory struct {
	now  float64 // VmRSS
	peak float64 // VmHWM, since the start or the last resetPeak
}

func memoryOf(pid int) (memory, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	return parseStatus(string(raw))
}

func parseStatus(status string) (m memory, err error) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*float64{"VmRSS": &m.now, "VmHWM": &m.peak}[name]
		if into == nil {
			continue
		}
		kib, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !ok {
			return m, fmt.Errorf("no size in %q", line)
		}
		n, err := strconv.ParseFloat(kib, 64)
		if err != nil {
			return m, err
		}
		*into = n / 1024
	}
	if m.now == 0 || m.peak == 0 {
		return m, errors.New("status of a process tells no VmRSS or no VmHWM")
	}
	return m, nil
}

// resetPeak begins VmHWM anew (man 5 proc_pid_clear_refs).
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
