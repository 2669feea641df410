package story

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The story of a site that is blocked and must work now: the commands change a running
// server, without a reload.
func TestExceptionsAndPausesOfARunningServer(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	programs := programs(t)
	dir := t.TempDir()
	c := &coreDNS{t: t, program: programs["coredns"], file: filepath.Join(dir, "Corefile"), dns: testkit.FreePort(t), ready: testkit.FreePort(t)}
	for name, text := range map[string]string{"allow.txt": "# empty on purpose\n", "block.txt": "||shop.example^\n"} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	db := filepath.Join(dir, "db")
	c.configure(fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	ready 127.0.0.1:%s
	safebrowsing {
		endpoint http://127.0.0.1:1
		db %s
		allow %s/allow.txt
		block %s/block.txt
	}
	template ANY ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
}
`, c.dns, c.ready, db, dir, dir))
	cli := func(args ...string) {
		t.Helper()
		args = append([]string{args[0], "-corefile", c.file}, args[1:]...)
		if status, out := testkit.Run(t, programs["safebrowsing"], args...); status != 0 {
			t.Errorf("%v: status %d, %s", args, status, out)
		}
	}
	c.start()
	c.want("shop.example.", dns.RcodeNameError)
	for _, step := range []struct {
		args  string
		name  string
		rcode int
	}{
		{"allow www.shop.example", "www.shop.example.", dns.RcodeSuccess},
		{"allow -remove www.shop.example", "www.shop.example.", dns.RcodeNameError},
		{"allow -for 2s shop.example", "shop.example.", dns.RcodeSuccess},
		{"block game.example", "www.game.example.", dns.RcodeNameError}, // meanwhile the exception ends
		{"pause 1h", "www.game.example.", dns.RcodeSuccess},
		{"pause off", "www.game.example.", dns.RcodeNameError},
		{"pause -keep 1h", "www.game.example.", dns.RcodeSuccess},
	} {
		begun := time.Now()
		cli(strings.Fields(step.args)...)
		c.want(step.name, step.rcode)
		t.Logf("%s: in force after %v", step.args, time.Since(begun).Round(10*time.Millisecond))
	}
	c.waitFor("Blocking is PAUSED until", 5*time.Second, "[WARNING]", "for all server blocks: every name passes")
	c.stop()
	c.start()
	c.waitFor("Blocking is PAUSED until", 5*time.Second)
	c.want("www.game.example.", dns.RcodeSuccess)
	cli("pause", "1h")
	c.stop()
	c.start()
	c.waitFor("was for the process before this one", 5*time.Second, "[INFO]")
	c.want("www.game.example.", dns.RcodeNameError)
	c.want("shop.example.", dns.RcodeNameError) // its exception has ended
	c.stop()
}
