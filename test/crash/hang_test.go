//go:build linux && amd64

package crash

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/miekg/dns"

	_ "github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// hang is the call at which the disk ceases to answer: this one never ends, nor does any sync after it.
type hang struct {
	name       string
	sample     bool
	relay      bool // else a CoreDNS
	at         func(c call) bool
	after      string // the file, as a pattern, that has been renamed before; "": none
	properties []string
	prepare    func(s *served)
}

func calls(name, pattern string) func(call) bool {
	return func(c call) bool {
		matches, _ := filepath.Match(pattern, filepath.Base(c.path))
		return c.name == name && matches
	}
}

var hangs = []hang{
	{name: "the schedule before the first request", at: calls("sync", "schedule.json.*")},
	{name: "a list as it is written", at: calls("write", "se-4b.list.*")},
	{name: "a list as it is synced", sample: true, at: calls("sync", "se-4b.list.*")},
	{name: "a list as it is renamed", at: calls("rename", "se-4b.list.*")},
	{name: "the folder", at: calls("sync", "db")},
	answeredHang,
	{name: "the count of searches", after: "uws-4b.list.*", at: calls("sync", "budget.json.*"), properties: []string{"budget 100"}},
	{name: "the clock of searches", after: "uws-4b.list.*", at: calls("sync", "searches.json.*"), prepare: func(s *served) {
		s.google.Break("search", 1, protocoltest.Fault{Status: 503})
	}},
	{name: "a relay's list", relay: true, at: calls("sync", "se-4b.list.*")},
	{name: "a relay's history", relay: true, at: calls("rename", "*.history.*")},
}

// answeredHang comes when the lists are in force.
var answeredHang = hang{name: "the schedule after an answer", after: "uws-4b.list.*", at: calls("sync", "schedule.json.*")}

// run runs the server until it has ended. act is called when the disk hangs, in a goroutine of
// its own; then the server gets SIGTERM, and has to end soon after that.
func (h hang) run(t *testing.T, act func(s *served)) {
	t.Helper()
	s := newServed(t)
	if h.prepare != nil {
		h.prepare(s)
	}
	cmd := s.command("coredns", "-conf", filepath.Join(s.place.root, "Corefile"))
	if h.relay {
		cmd = s.command(s.endpoint)
	}
	s.configure(s.corefile(h.properties...))
	hung, ended, told := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
	s.tracer.folders, s.tracer.point = append(s.place.folders(), filepath.Join(s.place.db(), "relay")), h.point(s.tracer, hung)
	go func() { told <- s.drive(act, h.relay, hung, ended) }()
	_, err := s.tracer.run(t, cmd)
	close(ended)
	testkit.Is(t, "the end", err, nil)
	testkit.WantNone(t, s.output(), "panic")
	took := time.Since(<-told)
	testkit.Between(t, "how long the end took after SIGTERM", took, 0, most())
	t.Logf("%-40s %s", h.name, took.Round(time.Millisecond))
}

// point returns the function of a tracer that makes the disk hang until it is released.
func (h hang) point(tr *tracer, hung chan struct{}) func(int, call) error {
	after, begun := h.after == "", false
	return func(_ int, c call) error {
		after = after || calls("rename", h.after)(c)
		first := !begun && after && h.at(c)
		if first {
			begun = true
			close(hung)
		}
		if first || begun && c.name == "sync" && !tr.released.Load() {
			return errHang
		}
		return nil
	}
}

// drive acts when the disk hangs, ends the server and returns when it has told it to. A server that does not end is killed.
func (s *served) drive(act func(s *served), relay bool, hung, ended <-chan struct{}) (told time.Time) {
	defer func() {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			s.t.Errorf("Expected an end after SIGTERM:\n%s", s.output())
			syscall.Kill(int(s.tracer.pid.Load()), syscall.SIGKILL)
		}
	}()
	for end := time.Now().Add(30 * time.Second); ; {
		select {
		case <-hung:
			act(s)
			syscall.Kill(int(s.tracer.pid.Load()), syscall.SIGTERM)
			return time.Now()
		case <-ended:
			s.t.Error("Expected the disk to hang before the end")
			return time.Now()
		case <-time.After(50 * time.Millisecond):
		}
		if !relay { // which searches
			_, _ = s.blocks("evil.example.")
		}
		if time.Now().After(end) {
			s.t.Errorf("Expected the disk to hang:\n%s", s.output())
			syscall.Kill(int(s.tracer.pid.Load()), syscall.SIGKILL)
			return time.Now()
		}
	}
}

// most is the longest that an end may take. Without -crash.all other tests use the processors.
func most() time.Duration {
	if *all {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// SIGTERM ends a CoreDNS and a relay whose disk hangs.
func TestSIGTERMDoesNotWaitForADiskThatHangs(t *testing.T) {
	testkit.Long(t)
	for _, h := range hangs {
		if !h.sample && !*all {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			h.run(t, func(s *served) {
				if !h.relay { // the disk may hang before the server listens
					s.awaits("an answer", func() bool { _, err := s.blocks("clean.example."); return err == nil })
				}
			})
		})
	}
}

// A reload while the disk hangs loses no query, keeps the lists in force, and sends no request.
// When the disk answers again, the new instance keeps the schedule.
func TestAReloadDoesNotWaitForADiskThatHangs(t *testing.T) {
	testkit.Long(t)
	var s *served
	answeredHang.run(t, func(at *served) {
		s = at
		_, _ = s.blocksAtLast("evil.example.") // a search, after which there are none in this engine
		var stop, lost atomic.Int64
		asked := make(chan int, 1)
		go func() {
			n := 0
			for ; stop.Load() == 0; n++ {
				if blocked, err := s.blocksAtLast("evil.example."); err != nil || !blocked {
					lost.Add(1)
				}
			}
			asked <- n
		}()
		for n := range 3 {
			// The cache of answers ends with an engine: the one that ends must not ask after that.
			blocked, err := s.blocksAtLast("evil.example.")
			testkit.Equal(t, fmt.Sprintf("the list is in force after %d reloads; %v", n, err), blocked, true)
			s.google.ClientStarted()
			s.configure(s.corefile(fmt.Sprint("cache ", 100+n)))
			syscall.Kill(int(s.tracer.pid.Load()), syscall.SIGUSR1)
			s.awaits("a reload", func() bool { return strings.Count(s.output(), "[INFO] Reloading complete") > n })
		}
		stop.Store(1)
		testkit.Equal(t, "there were queries", <-asked > 0, true)
		testkit.Equal(t, "queries that were not blocked", lost.Load(), 0)
		s.tracer.released.Store(true)
		s.awaits("the schedule of the last instance", func() bool { return strings.Contains(s.output(), "next request not before") })
	})
	testkit.Equal(t, "requests for lists: the first", len(s.google.Requests("update")), 1)
}

// blocksAtLast is blocks for a stub resolver, which asks again.
func (s *served) blocksAtLast(name string) (blocked bool, err error) {
	for range 3 {
		if blocked, err = s.blocks(name); err == nil {
			return blocked, nil
		}
	}
	return blocked, err
}

// awaits is testkit.Until in another goroutine than the test's.
func (s *served) awaits(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Errorf("Still waiting: %s\n%s", what, s.output())
			return
		}
	}
}

// serverVariable makes this test binary a server, with the first contact at once. Its value is "coredns", or for a relay
// the endpoint that it asks. A relay listens at the other one.
const serverVariable, addressVariable = "CRASH_SERVER", "CRASH_ADDRESS"

// runServer reports whether this process is such a server, after its end.
func runServer() bool {
	atOnce := func() time.Duration { return 0 }
	switch server := os.Getenv(serverVariable); server {
	case "":
		return false
	case "coredns":
		dnsserver.Directives = []string{"bind", "errors", say.Plugin, "template"}
		engine.ForTests{Registry: engine.Default}.SetFirstContact(atOnce)
		coremain.Run()
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := relay.Run(ctx, relay.Config{
			Settings: engine.Settings{Endpoint: server, Protocol: protocol.DialectV5.Name, Lists: config.DefaultLists, DB: place{os.Getenv(placeVariable)}.db()},
			Edge:     engine.Edge{FirstContact: atOnce}, Listen: os.Getenv(addressVariable),
		}, func(net.Addr, net.Addr) {})
		if err != nil {
			fmt.Println(err)
		}
	}
	return true
}

// served is a server in a process of its own that is traced, and the Safe Browsing server that it asks.
type served struct {
	t        *testing.T
	place    place
	google   *protocoltest.Server
	endpoint string
	address  string
	tracer   *tracer
}

func newServed(t *testing.T) *served {
	t.Helper()
	p := scenario{prepare: nothing}.newPlace(t)
	s := &served{tracer: new(tracer), t: t, place: p, google: protocoltest.New(t), address: testkit.FreeAddr(t)}
	server := httptest.NewServer(s.google)
	t.Cleanup(server.Close)
	s.endpoint = server.URL
	hash := sha256.Sum256([]byte("evil.example/"))
	for _, list := range strings.Fields(config.DefaultLists) {
		s.google.SetMinimumWait(list, time.Hour)
		s.google.Publish(list, [][]byte{hash[:4]})
	}
	s.google.AddThreat("evil.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	return s
}

func (s *served) corefile(properties ...string) string {
	_, port, _ := net.SplitHostPort(s.address)
	return fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	errors
	safebrowsing {
		endpoint %s
		db %s
		confirm_timeout 4s
		%s
	}
	template IN A {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
}
`, port, s.endpoint, s.place.db(), strings.Join(properties, "\n\t\t"))
}

func (s *served) configure(corefile string) {
	s.t.Helper()
	file := filepath.Join(s.place.root, "Corefile")
	testkit.Must(s.t, errors.Join(os.WriteFile(file+".new", []byte(corefile), 0o600), os.Rename(file+".new", file)))
}

func (s *served) command(server string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), serverVariable+"="+server, placeVariable+"="+s.place.root, addressVariable+"="+s.address,
		"RUNTIME_DIRECTORY="+s.place.spare(), "GODEBUG=asyncpreemptoff=1")
	return cmd
}

func (s *served) output() string {
	raw, _ := os.ReadFile(s.tracer.output)
	return string(raw)
}

func (s *served) blocks(name string) (bool, error) {
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: 5 * time.Second}).Exchange(m, s.address)
	return err == nil && answer.Rcode == dns.RcodeNameError, err
}
