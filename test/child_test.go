package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/coremain"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// childVariable has this test binary be a CoreDNS, with the first contact at once. It is a
// process of its own, which takes signals and whose files and memory can be counted.
const childVariable = "SAFEBROWSING_TEST_COREDNS"

func runChild() {
	if os.Getenv(childVariable) != "" {
		coremain.Run()
		os.Exit(0)
	}
}

// child is a CoreDNS in a process of its own.
type child struct {
	*testkit.Process
	t       testing.TB
	file    string // its Corefile
	address string
	metrics string
}

// newChild returns a CoreDNS that has not started.
func newChild(t testing.TB, w *world) *child {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	return &child{
		t: t, file: filepath.Join(t.TempDir(), "Corefile"),
		address: testkit.FreeAddress(t, w.host), metrics: testkit.FreeAddress(t, w.host),
	}
}

// configure writes the Corefile, whose first server block is for port 0.
func (c *child) configure(corefile string) {
	c.t.Helper()
	_, port, _ := net.SplitHostPort(c.address)
	corefile = strings.NewReplacer(".:0", ".:"+port, "\terrors\n", "\terrors\n\tprometheus "+c.metrics+"\n").Replace(corefile)
	// As a whole: a reload may read it at any time.
	if err := os.WriteFile(c.file+".new", []byte(corefile), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) start() {
	c.t.Helper()
	c.Process = testkit.StartWith(c.t, []string{childVariable + "=1"}, os.Args[0], "-conf", c.file)
}

// answers reports whether the server answers over TCP.
func (c *child) answers() bool {
	_, _, err := (&dns.Client{Net: "tcp", Timeout: time.Second}).Exchange(new(dns.Msg).SetQuestion("started.example.org.", dns.TypeA), c.address)
	return err == nil
}

// metric returns the sum of a metric, or -1 if it cannot be read.
func (c *child) metric(name string) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.metrics+"/metrics", nil)
	request.Close = true // no connection that counts
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return -1
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(line, name) {
			value, _ := strconv.ParseFloat(fields[1], 64)
			sum += value
		}
	}
	return sum
}

// resources are what a process could leak.
type resources struct{ goroutines, files, maps int }

func (r resources) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d mappings", r.goroutines, r.files, r.maps)
}

// mostly reports whether r is at most as much as was before, with room for what comes and
// goes: connections, threads, and memory of Go's own.
func (r resources) mostly(before resources) bool {
	return r.goroutines <= before.goroutines+8 && r.files <= before.files+8 && r.maps <= before.maps+30
}

func (c *child) resources() resources {
	c.t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(c.Pid()))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		c.t.Fatal(err)
	}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		c.t.Fatal(err)
	}
	return resources{int(c.metric("go_goroutines")), len(files), strings.Count(string(maps), "\n")}
}
