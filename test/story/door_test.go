package story

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The story of somebody who asks whether the network is protected, and why a name is blocked: the
// programs say what the server that runs says, and nothing if it is dead.
func TestProgramsSayWhatTheServerSaysAndThatItIsDead(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	programs := programs(t)
	dir := t.TempDir()
	db := filepath.Join(dir, "db")
	testkit.Write(t, dir, "block.txt", "bad.example\n")
	server := func() *coreDNS {
		c := &coreDNS{t: t, program: programs["coredns"], file: filepath.Join(t.TempDir(), "Corefile"), dns: testkit.FreePort(t), ready: testkit.FreePort(t)}
		c.configure(fmt.Sprintf(".:%s {\n\tbind 127.0.0.1\n\tready 127.0.0.1:%s\n\tsafebrowsing {\n\t\tdb %s\n\t\tblock %s/block.txt\n\t}\n\ttemplate ANY ANY {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}\n}\n", c.dns, c.ready, db, dir))
		c.start()
		return c
	}
	both := func(want int, args ...string) (out string) {
		t.Helper()
		for _, program := range []string{"safebrowsing", "coredns"} {
			begun := time.Now()
			status, said := testkit.Run(t, programs[program], append(args, "-db", db)...)
			if status != want {
				t.Errorf("%s %v: status %d, want %d: %s", program, args, status, want, said)
			}
			t.Logf("%s %v took %v", program, args, time.Since(begun).Round(time.Millisecond))
			said = strings.ReplaceAll(said, program+" ", "TOOL ")
			if said = strings.ReplaceAll(said, program+":", "TOOL:"); out != "" && out != said && !strings.Contains(said, "ago") {
				t.Errorf("%v: the programs differ:\n%s\n%s", args, out, said)
			}
			out = said
		}
		return out
	}
	both(1, "status")
	first := server()
	first.want("bad.example.", dns.RcodeNameError)
	wantAll(t, "status", both(1, "status"), "NOT protected: Safe Browsing is off, and your own lists block 1 name", "1 of 1 names blocked", "TOOL why bad.example", "TOOL allow -for 1h bad.example")
	wantAll(t, "why", both(1, "why", "bad.example"), "bad.example is blocked", "List: block.txt, line 1", "blocked 1 time in the last hour")
	wantAll(t, "blocked", both(0, "blocked"), "bad.example: blocked 1 time")

	second := server() // with the same db
	second.want("fine.example.", dns.RcodeSuccess)
	for _, name := range []string{"control.sock", "control-2.sock"} {
		var r struct{ State string }
		if status, out := testkit.Run(t, "curl", "-s", "--unix-socket", filepath.Join(db, name), "http://door/status"); status != 0 || json.Unmarshal([]byte(out), &r) != nil || r.State != "not_protected" {
			t.Errorf("%s: %d, %s", name, status, out)
		}
	}
	if status, out := testkit.Run(t, programs["coredns"], "allow", "bad.example", "-for", "1h", "-db", db); status != 0 || !strings.Contains(out, "db/allow.txt, line 1") {
		t.Errorf("allow: %d, %s", status, out)
	}
	first.want("bad.example.", dns.RcodeSuccess)
	second.want("bad.example.", dns.RcodeSuccess)

	first.process.Signal(syscall.SIGKILL)
	first.process.Wait()
	wantAll(t, "the other one", both(1, "status"), "NOT protected: Safe Browsing is off")
	second.process.Signal(syscall.SIGKILL)
	second.process.Wait()
	for _, args := range [][]string{{"status"}, {"why", "bad.example"}, {"pause", "10m"}, {"blocked"}} {
		wantAll(t, args[0], both(1, args...), "TOOL: CoreDNS does not run")
	}
	third := server() // in the places of the dead
	third.want("bad.example.", dns.RcodeSuccess)
	wantAll(t, "status", both(1, "status"), "0 of 1 names blocked")
	third.stop()
}
