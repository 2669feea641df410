package ownlist

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// BenchmarkByURL prints what a list by URL costs from Open until it is in force, its server included: time, memory at the peak, and after.
func BenchmarkByURL(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("%d names", n), func(b *testing.B) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				bw := bufio.NewWriterSize(w, 64<<10)
				for i := range n {
					fmt.Fprintf(bw, "%08x.host-%d.example\n", uint32(i)*2654435761, i)
				}
				bw.Flush()
			}))
			defer server.Close()
			last := lookup.FromQname(fmt.Sprintf("%08x.host-%d.example.", uint32(n-1)*2654435761, n-1))
			for b.Loop() {
				debug.FreeOSMemory()
				before := resetPeak(b)
				c := URLConfig{URL: server.URL, DB: b.TempDir(), MaxBytes: MaxMaxBytes}
				file, err := Open(Config{Path: c.Path(), Fetched: true}, nil)
				must(b, err)
				list := OpenURL(c, Config{}, func(e URLEvent) { b.Errorf("%+v", e) })
				for _, ok := file.Match(last, time.Now()); !ok; _, ok = file.Match(last, time.Now()) {
					time.Sleep(time.Millisecond)
				}
				peak := memory(b, "VmHWM")
				debug.FreeOSMemory()
				b.ReportMetric(float64(peak-before)/(1<<20), "MiB-peak")
				b.ReportMetric(float64(memory(b, "VmRSS")-before)/(1<<20), "MiB-after")
				list.Close()
				file.Close()
			}
		})
	}
}

// resetPeak sets the highest memory of the process so far to what it has now, which it returns.
func resetPeak(b *testing.B) int64 {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Skip(err)
	}
	return memory(b, "VmRSS")
}

// memory returns bytes of resident memory, by their name in proc(5).
func memory(b *testing.B, name string) (kB int64) {
	_, status, _ := strings.Cut(testkit.Read(b, "/proc/self/status"), "\n"+name)
	_, err := fmt.Sscanf(status, ": %d kB", &kB)
	must(b, err)
	return kB << 10
}
