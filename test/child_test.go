package test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	golog "log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// childVariable makes this test binary a CoreDNS, with the first contact at once, whose files and memory can be counted.
const childVariable = "SAFEBROWSING_TEST_COREDNS"

func runChild() {
	if os.Getenv(childVariable) != "" {
		if words := strings.Fields(os.Getenv(relayVariable)); len(words) == 3 {
			l, err := net.Listen("tcp", words[0]) // first: a client that is refused comes again 15 seconds later
			if err != nil {
				golog.Fatal(err)
			}
			go func() { golog.Fatal(serveRelay(l, words[1], words[2])) }()
		}
		coremain.Run()
		os.Exit(0)
	}
}

type child struct {
	*testkit.Process
	t       testing.TB
	file    string // its Corefile
	address string
	metrics string
}

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
	testkit.Must(c.t, os.WriteFile(c.file+".new", []byte(corefile), 0o600))
	testkit.Must(c.t, os.Rename(c.file+".new", c.file))
}

func (c *child) start() {
	c.t.Helper()
	c.Process = testkit.StartWith(c.t, []string{childVariable + "=1"}, os.Args[0], "-conf", c.file)
}

func (c *child) answers() bool {
	_, _, err := (&dns.Client{Net: "tcp", Timeout: time.Second}).Exchange(new(dns.Msg).SetQuestion("started.example.org.", dns.TypeA), c.address)
	return err == nil
}

// metric returns the sum of a metric, or -1 if it cannot be read.
func (c *child) metric(name string) float64 {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // no connection that counts
	response, err := client.Get("http://" + c.metrics + "/metrics")
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

// mostly reports whether r is at most as much as was before, with room for connections, threads, and memory of Go's own.
func (r resources) mostly(before resources) bool {
	return r.goroutines <= before.goroutines+8 && r.files <= before.files+8 && r.maps <= before.maps+30
}

func (c *child) resources() resources {
	c.t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(c.Pid()))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	testkit.Must(c.t, err)
	maps := testkit.Read(c.t, filepath.Join(proc, "maps"))
	return resources{int(c.metric("go_goroutines")), len(files), strings.Count(maps, "\n")}
}

const partVariable = "SAFEBROWSING_TEST_PART"

// inParts runs the calling test in n processes, beside other tests, for a process has one set of engines, log and metrics. In
// each of these it returns its part, from 0 to n-1, and true. In the process of go test it returns false, after their end.
func inParts(t *testing.T, n int) (part int, mine bool) {
	t.Helper()
	if text := os.Getenv(partVariable); text != "" {
		part, err := strconv.Atoi(text)
		testkit.Must(t, err)
		return part, true
	}
	t.Parallel()
	var all sync.WaitGroup
	for part := range n {
		all.Go(func() { runPart(t, part) })
	}
	all.Wait()
	return 0, false
}

// apart is inParts with one part. It reports whether this is the process of the test.
func apart(t *testing.T) bool {
	t.Helper()
	_, mine := inParts(t, 1)
	return mine
}

func runPart(t *testing.T, part int) {
	c := exec.Command(os.Args[0], partFlags(t)...)
	c.Env = append(os.Environ(), partVariable+"="+strconv.Itoa(part))
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("part %d: %v\n%s", part, err, out)
		return
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS") {
			_, _ = t.Output().Write([]byte(line))
		}
	}
}

// partFlags returns the flags of a process that runs the calling test only, as this one was
// asked to: the same subtests, with the same flags of this package.
func partFlags(t *testing.T) []string {
	_, subtests, some := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	run := "^" + t.Name() + "$"
	if some {
		run += "/" + subtests
	}
	flags := []string{"-test.v", "-test.run=" + run, "-test.short=" + strconv.FormatBool(testing.Short())}
	if deadline, ok := t.Deadline(); ok { // then this process ends, too
		flags = append(flags, "-test.timeout="+time.Until(deadline).String())
	}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			flags = append(flags, "-"+f.Name+"="+f.Value.String())
		}
	})
	return flags
}

// failing is a plugin whose shutdown fails when a reload would end it.
const failing = "failing"

func init() {
	plugin.Register(failing, func(c *caddy.Controller) error {
		c.Next()
		c.OnShutdown(func() error { return errors.New("this plugin cannot be shut down") })
		return nil
	})
}

func TestMain(m *testing.M) {
	clog.Discard()
	caddy.Quiet = true
	dnsserver.Quiet = true
	dnsserver.Directives = []string{
		"root", "metadata", "proxyproto", "reload", "bind", "ready", "health", "prometheus", "errors", "log", "dnstap", "dns64", "rewrite", "acl", manyClients,
		say.Plugin, failing, "cache", "tls", "template", "hosts", "forward", "whoami", "view", "multisocket",
	}
	engines.SetFirstContact(atOnce) // real seconds are precious
	runChild()
	files.WaitLimit = time.Minute // temporary folders are removed after an end
	testkit.SideBySide(8)
	m.Run()
	os.RemoveAll(os.Getenv("STATE_DIRECTORY")) // of testkit
}
