package lookup

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const mib = 1 << 20

func TestTheLeastLimitOfTheCgroupsCounts(t *testing.T) {
	const machine = 4096 * mib
	for _, tt := range []struct {
		name, own string
		files     map[string]string
		want      int64 // MiB
	}{
		{"none", "", nil, 4096},
		{"no limit", "0::/a.service\n", map[string]string{"a.service/memory.max": "max\n"}, 4096},
		{"of a service", "0::/a.slice/a.service\n", map[string]string{"a.slice/a.service/memory.max": "268435456\n"}, 256},
		{"of its slice", "0::/a.slice/a.service\n", map[string]string{"a.slice/a.service/memory.max": "max\n", "a.slice/memory.max": "134217728\n"}, 128},
		{"of a container in a namespace of its own", "0::/\n", map[string]string{"memory.max": "67108864\n"}, 64},
		{"of a container that sees the host's path", "0::/docker/4711\n", map[string]string{"memory.max": "67108864\n"}, 64},
		{"more than there is", "0::/a\n", map[string]string{"a/memory.max": "9223372036854771712\n"}, 4096},
		{"version 1", "12:cpu:/a\n11:memory:/a\n0::/a\n", map[string]string{"memory/a/memory.limit_in_bytes": "268435456\n", "cpu/a/memory.limit_in_bytes": "1\n"}, 256},
		{"version 1 without a limit", "11:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4096},
		{"another cgroup's", "0::/a\n", map[string]string{"b/memory.max": "1\n"}, 4096},
		{"nonsense", "0::\n\nx\n", map[string]string{"memory.max": "-1\n"}, 4096},
	} {
		top := t.TempDir()
		for name, text := range tt.files {
			testkit.Must(t, os.MkdirAll(filepath.Join(top, filepath.Dir(name)), 0o700))
			testkit.Write(t, top, name, text)
		}
		testkit.Equal(t, tt.name, limitOfCgroups(top, tt.own, machine), tt.want*mib)
	}
}

func TestThisMachineHasMemory(t *testing.T) {
	testkit.Between(t, "bytes of memory", ofMachine(), 16*mib, math.MaxInt64)
}
