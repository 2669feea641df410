package story

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The story of a site that is blocked and must work now: the commands change a running server, without a reload.
func TestExceptionsAndPausesOfARunningServer(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	dir := t.TempDir()
	c := newCoreDNS(t, dir)
	allow, block := testkit.Write(t, dir, "allow.txt", "# empty on purpose\n"), testkit.Write(t, dir, "block.txt", "||shop.example^\n")
	c.configure(answering, "endpoint http://127.0.0.1:1", "db "+filepath.Join(dir, "db"), "allow "+allow, "block "+block)
	cli := func(args ...string) {
		t.Helper()
		status, out := testkit.Run(t, programs(t)["safebrowsing"], append([]string{args[0], "-corefile", c.file}, args[1:]...)...)
		testkit.Equal(t, fmt.Sprint("status of ", args, ", which says ", out), status, 0)
	}
	c.start()
	c.want("shop.example.", dns.RcodeNameError)
	for _, step := range []struct {
		args  string
		name  string
		rcode int
	}{
		{"allow -for 10s shop.example", "shop.example.", dns.RcodeSuccess},
		{"block game.example", "www.game.example.", dns.RcodeNameError}, // meanwhile the exception ends
		{"pause 1h", "www.game.example.", dns.RcodeSuccess},
		{"pause off", "www.game.example.", dns.RcodeNameError},
		{"pause -keep 1h", "www.game.example.", dns.RcodeSuccess},
	} {
		cli(strings.Fields(step.args)...)
		c.want(step.name, step.rcode)
	}
	c.waitFor("Blocking is PAUSED until", 20*time.Second, "[WARNING]", "for all server blocks: every name passes")
	c.stop()
	c.start()
	c.waitFor("Blocking is PAUSED until", 20*time.Second)
	c.want("www.game.example.", dns.RcodeSuccess)
	cli("pause", "1h")
	c.stop()
	c.start()
	c.waitFor("was for the process before this one", 20*time.Second, "[INFO]")
	c.want("www.game.example.", dns.RcodeNameError)
	c.want("shop.example.", dns.RcodeNameError) // its exception has ended
	c.stop()
}

// The story of a machine that boots without a way to Google: the service has started as soon as the port
// listens, and the service manager shows what status says.
func TestTheServiceManagerIsTold(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	dir := t.TempDir()
	socket := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	manager, err := net.ListenUnixgram("unixgram", socket)
	testkit.Must(t, err)
	defer manager.Close()
	var server *testkit.Process
	hears := func(text string) {
		t.Helper()
		buffer := make([]byte, 1000)
		manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := manager.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != text {
			t.Fatalf("the service manager heard %q, %v; want %q\n%s", got, err, text, server.Output())
		}
	}
	c, db := newCoreDNS(t, dir), filepath.Join(dir, "db")
	c.configure(answering, "endpoint http://127.0.0.1:"+testkit.FreePort(t), "api_key AIzaKEY", "db "+db)
	server = testkit.StartWith(t, []string{"NOTIFY_SOCKET=" + socket.Name}, programs(t)["coredns"], "-conf", c.file)
	hears("READY=1")
	// Over TCP no answer is lost on a busy machine: nobody listens, or there is one.
	if answer, _, err := (&dns.Client{Net: "tcp", Timeout: time.Minute}).Exchange(new(dns.Msg).SetQuestion("example.org.", dns.TypeA), "127.0.0.1:"+c.dns); err != nil || len(answer.Answer) != 1 {
		t.Errorf("a service that has started answers %v, %v", answer, err)
	}
	const headline = "NOT protected: no list of Safe Browsing v5 is in force"
	hears("READY=1\nSTATUS=" + headline)
	_, out := testkit.Run(t, programs(t)["safebrowsing"], "status", "-db", db)
	testkit.WantStart(t, out, headline+", since ")
	server.Stop()
	hears("STOPPING=1")
}

// The story of somebody who asks whether the network is protected, and why a name is blocked: the
// programs say what the server that runs says, and nothing if it is dead.
func TestProgramsSayWhatTheServerSaysAndThatItIsDead(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	testkit.SameDay(t)
	programs := programs(t)
	dir := t.TempDir()
	db := filepath.Join(dir, "db")
	testkit.Write(t, dir, "block.txt", "bad.example\n")
	server := func() *coreDNS {
		c := newCoreDNS(t, t.TempDir())
		c.configure(answering, "db "+db, "block "+dir+"/block.txt")
		c.start()
		return c
	}
	both := func(want int, args ...string) (out string) {
		t.Helper()
		for _, program := range []string{"safebrowsing", "coredns"} {
			status, said := testkit.Run(t, programs[program], append(args, "-db", db)...)
			testkit.Equal(t, fmt.Sprint("status of ", program, args, ", which says ", said), status, want)
			if said = strings.NewReplacer(program+" ", "TOOL ", program+":", "TOOL:").Replace(said); out != "" && out != said && !strings.Contains(said, "ago") {
				t.Errorf("%v: the programs differ:\n%s\n%s", args, out, said)
			}
			out = said
		}
		return out
	}
	both(1, "status")
	first := server()
	first.want("bad.example.", dns.RcodeNameError)
	testkit.WantParts(t, both(1, "status"), "NOT protected: Safe Browsing is off, and your own lists block 1 name", "1 of 1 names blocked", "TOOL why bad.example", "TOOL allow -for 1h bad.example")
	testkit.WantParts(t, both(1, "why", "bad.example"), "bad.example is blocked", "List: block.txt, line 1", "blocked 1 time in the last hour")
	testkit.WantParts(t, both(0, "blocked"), "bad.example: blocked 1 time")

	second := server() // with the same db
	second.want("fine.example.", dns.RcodeSuccess)
	for _, name := range []string{"control.sock", "control-2.sock"} {
		_, out := testkit.Run(t, "curl", "-s", "--unix-socket", filepath.Join(db, name), "http://door/status")
		testkit.WantParts(t, name+": "+out, `"state":"not_protected"`)
	}
	status, out := testkit.Run(t, programs["coredns"], "allow", "bad.example", "-for", "1h", "-db", db)
	testkit.Equal(t, "status of allow", status, 0)
	testkit.WantParts(t, out, "db/allow.txt, line 1")
	first.want("bad.example.", dns.RcodeSuccess)
	second.want("bad.example.", dns.RcodeSuccess)

	first.process.Kill()
	testkit.WantParts(t, both(1, "status"), "NOT protected: Safe Browsing is off")
	second.process.Kill()
	for _, args := range [][]string{{"status"}, {"why", "bad.example"}, {"pause", "10m"}, {"blocked"}} {
		testkit.WantParts(t, both(1, args...), "TOOL: CoreDNS does not run")
	}
	third := server() // in the places of the dead
	third.want("bad.example.", dns.RcodeSuccess)
	testkit.WantParts(t, both(1, "status"), "0 of 1 names blocked")
	third.stop()
}
