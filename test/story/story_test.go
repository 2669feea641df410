// Package story tests whole programs as they are installed. It is apart so that its waiting runs at the same time as the other tests.
package story

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// firstContact is the longest that a start waits before it asks, with room for a busy machine.
const firstContact = 80 * time.Second

// The story of somebody who mistyped the key: what is wrong is said at once and
// everywhere, and when it is repaired protection comes with the first contact.
func TestAWrongKeyThatIsRepaired(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const wrong, right = "AIzaWRONG", "AIzaRIGHT"
	google := serviceWith(t, "malware.example.net/")
	google.SetKey(right)
	google.SetMinimumWait("", 30*time.Minute)
	server := httptest.NewServer(google)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	c, db := newCoreDNS(t, dir), filepath.Join(dir, "db")
	says := func(want int, args []string, parts ...string) {
		t.Helper()
		status, out := testkit.Run(t, programs(t)["safebrowsing"], args...)
		if testkit.WantParts(t, out, parts...); status != want || strings.Count(out, "status 403") > 2 {
			t.Errorf("%q ends with status %d, want %d, and says the cause twice at most:\n%s", args, status, want, out)
		}
	}
	doctor, state := []string{"doctor", "-corefile", c.file}, []string{"status", "-db", db}

	// The wrong key.
	c.configure(answering, "endpoint "+server.URL, "api_key "+wrong, "db "+db)
	c.start()
	c.waitFor("NO list is in force yet", 20*time.Second, "[WARNING]", "Safe Browsing v5 is on", "se-4b, mw-4b, uws-4b", "db "+db, "within a minute (first contact)")
	c.waitFor("Cannot update lists", firstContact, "[ERROR]", "status 403", "Next try not before", "Check the API key")
	c.wantReady()
	c.want("malware.example.net.", dns.RcodeSuccess) // nothing blocks on a guess
	says(1, doctor, "problem  server", "problem  running   NOT protected: no list of Safe Browsing v5 is in force", "se-4b (phishing), mw-4b (malware), uws-4b", "are not in force", "The server is not asked now (back-off after a failure", "status 403", "Until ")
	says(1, state, "NOT protected: no list of Safe Browsing v5 is in force", "se-4b", "not in force", "status 403")
	c.stop()

	// A restart changes nothing, and says so.
	c.start()
	c.waitFor("NO list is in force yet", 20*time.Second, "[WARNING]", "next request not before", "back-off after a failure at", "status 403")
	c.wantReady()
	c.stop()

	// The right key.
	c.configure(answering, "endpoint "+server.URL, "api_key "+right, "db "+db)
	google.ClientStarted()
	begun := time.Now()
	c.start()
	c.waitFor("NO list is in force yet", 20*time.Second, "[WARNING]", "within a minute (first contact)")
	c.waitFor("List se-4b now has 1 entry", firstContact, "[INFO]", "next update not before")
	c.want("malware.example.net.", dns.RcodeNameError)
	t.Logf("protected %s after the start with the right key", time.Since(begun).Round(time.Second))
	c.want("harmless.example.net.", dns.RcodeSuccess)
	c.wantReady()
	says(0, doctor, "ok       server", "ok       running   Protected by Safe Browsing v5, since ", "ok       lists     1 phishing", "ok       today ")
	says(0, state, "Protected by Safe Browsing v5, since ", "1 phishing", "se-4b")
	c.stop()
	testkit.WantNone(t, c.before+c.process.Output(), wrong, right)
}

type coreDNS struct {
	t          *testing.T
	file       string // the Corefile
	dns, ready string // ports
	process    *testkit.Process
	before     string // the output of the processes before
}

func newCoreDNS(t *testing.T, dir string) *coreDNS {
	t.Helper()
	return &coreDNS{t: t, file: filepath.Join(dir, "Corefile"), dns: testkit.FreePort(t), ready: testkit.FreePort(t)}
}

// answering is a plugin that answers for all names.
const answering = "template ANY ANY {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}"

func (c *coreDNS) configure(plugins string, properties ...string) {
	c.t.Helper()
	text := fmt.Sprintf(".:%s {\n\tbind 127.0.0.1\n\tready 127.0.0.1:%s\n\t%s\n\tsafebrowsing {\n\t\t%s\n\t}\n}\n", c.dns, c.ready, plugins, strings.Join(properties, "\n\t\t"))
	testkit.Must(c.t, os.WriteFile(c.file, []byte(text), 0o600))
}

func (c *coreDNS) start() {
	c.t.Helper()
	if c.process != nil {
		c.before += c.process.Output()
	}
	c.process = testkit.Start(c.t, programs(c.t)["coredns"], "-conf", c.file)
}

func (c *coreDNS) stop() { c.process.Stop() }

func (c *coreDNS) waitFor(text string, timeout time.Duration, parts ...string) {
	c.t.Helper()
	testkit.WantParts(c.t, c.process.Line(text, timeout), parts...)
}

// wantReady waits until the server is ready, a moment at most.
func (c *coreDNS) wantReady() {
	c.t.Helper()
	testkit.Until(c.t, "readiness", func() bool {
		answer, err := http.Get("http://127.0.0.1:" + c.ready + "/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// want asks for a name until the answer has the code, for 40 seconds at least: a list may have come this instant.
func (c *coreDNS) want(name string, rcode int) {
	c.t.Helper()
	client := &dns.Client{Timeout: 20 * time.Second}
	testkit.Until(c.t, name+" to get "+dns.RcodeToString[rcode], func() bool {
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), "127.0.0.1:"+c.dns)
		return err == nil && answer.Rcode == rcode
	})
}
