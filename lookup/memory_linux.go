package lookup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ofMachine returns the bytes of memory of this machine, or fewer if a cgroup limits them; 0 if
// that is unknown.
func ofMachine() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	memory := int64(uint64(info.Totalram) * uint64(info.Unit))
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return memory
	}
	return min(memory, limitOfCgroups("/sys/fs/cgroup", string(own), memory))
}

// limitOfCgroups returns the least limit of memory among the cgroups of a process and those above
// them, or most if none has a lower one. own is the process's /proc/PID/cgroup, and top is where
// cgroups are mounted. See cgroups(7), memory.max of version 2, memory.limit_in_bytes of version 1.
// In a container a path may be the host's: then top's limit holds.
func limitOfCgroups(top, own string, most int64) int64 {
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(fields) < 3 {
			continue
		}
		mount, file := top, "memory.max"
		switch {
		case fields[1] == "memory":
			mount, file = filepath.Join(top, "memory"), "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		for path := filepath.Join("/", fields[2]); ; path = filepath.Dir(path) {
			most = min(most, limitIn(filepath.Join(mount, path, file), most))
			if path == "/" {
				break
			}
		}
	}
	return most
}

// limitIn returns the limit in a file, or otherwise if there is none.
func limitIn(file string, otherwise int64) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // or "max"
	if err != nil || limit <= 0 {
		return otherwise
	}
	return limit
}
