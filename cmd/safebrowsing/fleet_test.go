package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// blockOf returns a block of a document: the first one in a language after a text.
func blockOf(t *testing.T, document, after, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(document, after)
	_, block, begins := strings.Cut(rest, "\n~~~ "+language+"\n")
	block, _, ends := strings.Cut(block, "\n~~~\n")
	if !found || !begins || !ends {
		t.Fatalf("there is no block of %s after %q", language, after)
	}
	return block + "\n"
}

// The two commands of the page about fleets start a relay, the doctor and a Corefile of the
// page reach it, and the metrics of its alerts are there.
func TestTheSmallOfficeOfTheDocumentsWorks(t *testing.T) {
	page := read(t, filepath.Join("..", "..", "docs", "fleet.md"))
	corefile := read(t, filepath.Join("..", "..", "docs", "corefile.md"))
	office := "\n## In a small office\n"
	program := relayProgram(t)
	w := newWorld(t)
	w.SetKey("GOOGLE")
	t.Chdir(t.TempDir())
	write(t, "safebrowsing.key", "GOOGLE\n")
	commands := strings.Split(strings.TrimSpace(blockOf(t, page, office, "sh")), "\n")
	if len(commands) != 2 {
		t.Fatalf("%d commands, want the two that the page promises: %q", len(commands), commands)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", commands[0]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", commands[0], err, out)
	}
	t.Setenv(config.KeyVariable, "GOOGLE")
	run(t, "update", "-now", "-db", "relay", "-endpoint", w.endpoint).want(0)
	t.Setenv(config.KeyVariable, "")
	w.ClientStarted()
	args := strings.Fields(strings.Replace(commands[1], "192.168.1.2:8099", "127.0.0.1:0", 1))
	if args[0] != "safebrowsing-relay" {
		t.Fatalf("the command is %q", args)
	}
	url, admin := startRelay(t, program, append(args[1:], "-endpoint", w.endpoint, "-admin", "127.0.0.1:0")...)
	testkit.WantOK(t, admin+"/readyz")
	if _, err := os.Stat("relay"); err != nil {
		t.Error(err)
	}
	here := strings.NewReplacer("http://192.168.1.2:8099", url, "/etc/coredns/relay-client.key", "clients.key")
	doctor := strings.Fields(here.Replace(blockOf(t, page, "Check it from", "sh")))
	run(t, doctor[1:]...).want(0, "it accepts the key and offers 3 lists", "se-4b 2 entries, mw-4b 1 entry", "ok       confirm").quiet()
	write(t, "other.key", "OTHER\n")
	if out := run(t, "doctor", "-endpoint", url, "-api-key-file", "other.key").want(1, "this relay needs a key", "from the file of its -client-key-file").out; strings.Contains(out, "OTHER") {
		t.Error(out)
	}
	write(t, "Corefile", here.Replace(blockOf(t, page, office, "corefile")))
	if _, found, out := examine(t, "Corefile"); found["server"].Status != isOK {
		t.Errorf("the Corefile does not reach the relay: %s", out)
	}
	alerts, clients, _ := strings.Cut(blockOf(t, page, "\n## Watch it\n", "txt"), "# on the CoreDNS servers")
	served := testkit.Body(t, admin+"/metrics")
	wantPlanOf(t, served)
	name := regexp.MustCompile(`\b(?:coredns_)?safebrowsing_[a-z_]+`)
	for _, m := range name.FindAllString(alerts, -1) {
		if !strings.Contains(served, "\n"+m) {
			t.Errorf("the relay has no metric %s", m)
		}
	}
	for _, m := range name.FindAllString(clients, -1) {
		if !strings.Contains(corefile, "`"+m+"{") {
			t.Errorf("CoreDNS has no metric %s", m)
		}
	}
	for _, m := range regexp.MustCompile(`outcome=~?"([a-z|]+)"`).FindAllStringSubmatch(alerts, -1) {
		for outcome := range strings.SplitSeq(m[1], "|") {
			if !strings.Contains(page, "`"+outcome+"`") {
				t.Errorf("there is no outcome %s", outcome)
			}
		}
	}
}

// wantPlanOf wants a plan from the metrics of a relay, as if it ran for an hour: with its one client, and with
// what its one search, of doctor, costs.
func wantPlanOf(t *testing.T, metrics string) {
	t.Helper()
	begun := fmt.Sprintf("\nprocess_start_time_seconds %d\n", time.Now().Add(-time.Hour).Unix())
	metrics = regexp.MustCompile(`\nprocess_start_time_seconds .*\n`).ReplaceAllString(metrics, begun)
	p := decode[planned](t, fed(t, metrics, "plan", "-json", "-from", "-").want(0).out)[0]
	if m := p.Measured; m == nil || m.Clients != 1 || p.Network.Nodes != 1 || p.Network.Lines != defaults().Lines ||
		!near(m.Searches, 24, 0.01) || !near(m.Dollars, 1.2, 0.01) {
		t.Errorf("got %+v, measured %+v", p, m)
	}
}

// relayProgram builds the relay and returns its path.
func relayProgram(t *testing.T) string {
	t.Helper()
	testkit.Long(t)
	programs, err := testkit.Build(t.TempDir(), "safebrowsing-relay")
	testkit.Must(t, err)
	return programs["safebrowsing-relay"]
}

// startRelay runs the relay until the test ends, and returns the URLs for its clients and of
// its admin. The arguments say with -listen and -admin that it chooses the ports.
func startRelay(t *testing.T, program string, args ...string) (url, admin string) {
	t.Helper()
	p := testkit.Start(t, program, args...)
	_, admin, _ = strings.Cut(p.Line("Metrics: ", time.Minute), "Metrics: ")
	_, url, _ = strings.Cut(p.Line("    endpoint ", time.Minute), "endpoint ")
	return strings.TrimSpace(url), strings.TrimSuffix(strings.TrimSpace(admin), "/metrics")
}
