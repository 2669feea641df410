package test

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// forwarder is a resolver that runs in front of ours. Its lines in the document are completed by a replacement.
type forwarder struct {
	heading     string // of the section of the document, and of its row in the table
	row         string // of the table, if it is another one
	program     string
	args        string
	notInDebian bool   // .ci/tools cannot install it
	at          string // between a server's address and its port
	old, new    string
}

var forwarders = []forwarder{
	{heading: "Unbound", program: "unbound", args: "-d -c FILE", at: "@", old: "server:", new: `server:
    interface: 127.0.0.1
    port: PORT
    username: ""
    chroot: ""
    pidfile: ""
    use-syslog: no
    do-not-query-localhost: no
    directory: "DIR"`},
	{heading: "BIND", program: "named", args: "-g -c FILE", at: " port ", old: "options {", new: `controls { };
options {
    directory "DIR";
    pid-file none;
    session-keyfile none;
    listen-on-v6 { none; };
    listen-on port PORT { 127.0.0.1; };`},
	{heading: "dnsmasq", program: "dnsmasq", args: dnsmasqArgs, at: "#", new: dnsmasqLines},
	{heading: "Pi-hole", row: "dnsmasq", program: "dnsmasq", args: dnsmasqArgs, at: "#", new: dnsmasqLines},
	{heading: "AdGuard Home", program: "AdGuardHome", args: "--no-check-update --config FILE --work-dir DIR", notInDebian: true, at: ":",
		old: "dns:", new: "schema_version: 29\nhttp:\n  address: 127.0.0.1:0\ndns:\n  bind_hosts: [127.0.0.1]\n  port: PORT"},
}

const (
	dnsmasqArgs  = "--no-daemon --conf-file=FILE"
	dnsmasqLines = "port=PORT\nlisten-address=127.0.0.1\nbind-interfaces\nno-hosts\nuser=USER\n"
)

// pihole returns what Pi-hole 6.4 writes for its dnsmasq from the settings of the document and from the defaults: write_dnsmasq_config
// in src/config/dnsmasq_config.c of pi-hole/FTL, without its port, its log file and the names of its own domain.
func pihole(settings string) string {
	lines := []string{"no-resolv"}
	for _, m := range regexp.MustCompile(`(?m)^ *upstreams = \[ "(.*)" \]$`).FindAllStringSubmatch(settings, -1) {
		lines = append(lines, "server="+m[1])
	}
	lines = append(lines, "cache-size=10000", "localise-queries", "log-queries", "log-async", "bogus-priv")
	if !strings.Contains(settings, "dnssec = false") {
		lines = append(lines, "dnssec", "trust-anchor=.,20326,8,2,E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D")
	}
	lines = append(lines, "use-stale-cache=3600", "local-service", "local=/home.arpa/", "local=/internal/",
		"server=/test/", "server=/invalid/", "address=/localhost/127.0.0.1", "address=/localhost/::1",
		"server=/bind/", "server=/onion/", "cache-rr=ANY", "filter-rr=ANY")
	return strings.Join(lines, "\n") + "\n"
}

// TestResolversInFront runs the resolvers of docs/network.md with the lines that are there, in front of servers with
// different words. systemd-resolved has a test of its own. It makes the rows of the tables there and in test/README.md:
// where one differs, the failure has the row to put in its place.
func TestResolversInFront(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	servers := map[string]*world{}
	for _, word := range []string{"respond nxdomain", "respond nodata", "keep_clients off", "keep_clients"} {
		w := newWorld(t)
		if strings.HasPrefix(word, "keep_clients") {
			w.upstream = leadingUpstream(t)
		}
		w.run(blockList(t, "blocked.example"), word)
		servers[word] = w
	}
	for _, f := range forwarders {
		t.Run(f.heading, func(t *testing.T) {
			program := findForwarder(t, f)
			run := func(t *testing.T, word string) (address string) {
				host, port, err := net.SplitHostPort(servers[word].address("udp"))
				testkit.Must(t, err)
				return runForwarder(t, f, program, strings.ReplaceAll(documentedConfig(t, f.heading), "192.0.2.53", host+f.at+port))
			}
			checkForwarder(t, cmp.Or(f.row, f.heading), run(t, "respond nxdomain"))
			if f.row != "" || f.notInDebian { // as another one, or not there to make the rows
				return
			}
			wantOtherTypes(t, f.heading, run)
			wantRow(t, f.heading, run)
		})
	}
}

// wantOtherTypes asks a resolver for A, then TXT, then MX of a blocked name, each twice, and wants the answers in the table.
func wantOtherTypes(t *testing.T, heading string, run func(t *testing.T, word string) string) {
	t.Helper()
	for _, mode := range []string{"nxdomain", "nodata"} {
		t.Run(mode, func(t *testing.T) {
			address, cells := run(t, "respond "+mode), []string{"", heading, "`" + mode + "`"}
			for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeMX} {
				first := outcomeOf(askForwarder(t, address, "blocked.example.", qtype))
				second := outcomeOf(askForwarder(t, address, "blocked.example.", qtype))
				cells = append(cells, strings.Replace(first+", "+second, first+", "+first, first+" ×2", 1))
			}
			wantCells(t, "docs/network.md", cells)
		})
	}
}

func wantCells(t *testing.T, document string, cells []string) {
	t.Helper()
	if row := strings.TrimSpace(strings.Join(append(cells, ""), " | ")); !strings.Contains(documents(t)[document], "\n"+row+"\n") {
		t.Errorf("Expected this row in %s:\n%s", document, row)
	}
}

// outcomeOf returns what a client gets, as the table of docs/network.md spells it.
func outcomeOf(m *dns.Msg) string {
	switch {
	case m.Rcode != dns.RcodeSuccess:
		return dns.RcodeToString[m.Rcode]
	case len(m.Answer) == 0:
		return "NODATA"
	}
	return "passes"
}

// findForwarder returns the path of a resolver. One that is not in Debian may be missing in CI, too.
func findForwarder(t *testing.T, f forwarder) string {
	t.Helper()
	if _, err := exec.LookPath(f.program); err != nil && f.notInDebian {
		t.Skip("not in Debian: ", err)
	}
	return testkit.Program(t, f.program)
}

// checkForwarder asks a resolver twice for each name, and so for an answer that it may have cached. A row of docs/network.md
// says whether the first and the second answer for a blocked name have the error of ours.
func checkForwarder(t *testing.T, row, address string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` [0-9.]+ \| NXDOMAIN \| (not )?passed on(, but not from cache)? \|$`)
	words := line.FindStringSubmatch(documents(t)["docs/network.md"])
	if words == nil {
		t.Fatalf("Expected a row of the table for %s", row)
	}
	for i, keeps := range []bool{words[1] == "", words[1] == "" && words[2] == ""} {
		m := askForwarder(t, address, "clean.example.org.", dns.TypeA)
		testkit.Equal(t, fmt.Sprintf("answer %d for a clean name: rcode, addresses", i+1), [2]int{m.Rcode, len(m.Answer)}, [2]int{0, 1})
		m = askForwarder(t, address, "blocked.example.", dns.TypeA)
		_, kept := ede(m)
		got, want := [3]any{m.Rcode, len(m.Answer), kept}, [3]any{dns.RcodeNameError, 0, keeps}
		testkit.Equal(t, fmt.Sprintf("answer %d for a blocked name: rcode, addresses, Extended DNS Error", i+1), got, want)
	}
}

func documentedConfig(t *testing.T, heading string) string {
	_, text, _ := strings.Cut(documents(t)["docs/network.md"], "\n### "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n##")
	return onlyBlock(t, text, "txt")
}

func runForwarder(t *testing.T, f forwarder, program, documented string) string {
	if f.heading == "Pi-hole" {
		documented = pihole(documented)
	}
	dir, port := t.TempDir(), testkit.FreePort(t)
	values := strings.NewReplacer("DIR", dir, "PORT", port, "USER", os.Getenv("USER"), "FILE", filepath.Join(dir, "config"))
	writeFile(t, dir, "config", strings.Replace(documented, f.old, values.Replace(f.new), 1))
	startForwarder(t, program, strings.Fields(values.Replace(f.args))...)
	return "127.0.0.1:" + port
}

// startForwarder starts a program that runs until the test ends, and logs what it has written if the test has failed.
func startForwarder(t *testing.T, program string, args ...string) {
	p := testkit.Start(t, program, args...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Output())
		}
	})
}

// askForwarder asks until the resolver answers. One that has just started may fail to: it does not know its network
// yet. The timeout is long because dnsmasq would count a repeated query as the second one.
func askForwarder(t *testing.T, address, name string, qtype uint16) *dns.Msg {
	t.Helper()
	c := &dns.Client{Timeout: 15 * time.Second}
	var r *dns.Msg
	testkit.Until(t, "an answer about "+name, func() bool {
		var err error
		r, _, err = c.Exchange(query(name, qtype), address)
		return err == nil && r.Rcode != dns.RcodeServerFailure
	})
	return r
}

// ownNetwork says that this process is in the namespaces that enterOwnNetwork makes.
const ownNetwork = "SAFEBROWSING_TEST_OWN_NETWORK"

// enterOwnNetwork gives a command namespaces with the network of the documents: this machine has 192.0.2.1, and our server
// 192.0.2.53. Its arguments are the folder that becomes /etc/systemd, and the command. systemd-resolved asks no server until
// an interface has a carrier and an address, so there is a pair of interfaces. It gives up root for its own user.
const enterOwnNetwork = `set -e
ip link set lo up
ip link add lan type veth peer name wire
ip address add 192.0.2.1/24 dev lan
ip address add 192.0.2.53/32 dev lo
ip link set wire up
ip link set lan up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/systemd
{ cat /etc/passwd; echo systemd-resolve:x:65534:65534::/:/usr/sbin/nologin; } >/run/passwd
mount --bind /run/passwd /etc/passwd
mount --bind "$1" /etc/systemd
shift
exec "$@"`

// TestSystemdResolvedInFront runs systemd-resolved with the lines of docs/network.md, where
// it cannot disturb the DNS of this machine.
func TestSystemdResolvedInFront(t *testing.T) {
	testkit.Long(t)
	program := resolvedInOwnNetwork(t)
	if program == "" {
		return
	}
	start := func(t *testing.T, properties ...string) (address string) {
		w := newWorld(t)
		w.host, w.upstream = "192.0.2.53", leadingUpstream(t)
		w.serve(strings.Replace(w.corefile(properties...), ".:0 {", ".:53 {", 1))
		// The resolver of before, which does not filter and was asked by TLS, is no second upstream.
		testkit.Must(t, os.WriteFile("/etc/systemd/resolved.conf", []byte("[Resolve]\nDNS="+w.upstream+"\nDNSOverTLS=yes\n"), 0o644))
		startForwarder(t, program)
		return "127.0.0.53:53"
	}
	t.Run("blocking", func(t *testing.T) { checkForwarder(t, "systemd-resolved", start(t, blockList(t, "blocked.example"))) })
	wantRow(t, "systemd-resolved", func(t *testing.T, word string) string { return start(t, word) })
}

// resolvedInOwnNetwork returns the path of systemd-resolved, which .ci/tools unpacks into a folder of PATH, if this process has the
// network and the configuration of the documents. Else it runs the calling test so, with flags, and returns "".
func resolvedInOwnNetwork(t *testing.T, flags ...string) (program string) {
	t.Helper()
	program = "/lib/systemd/systemd-resolved"
	_, err := os.Stat(program)
	if err != nil {
		program, err = exec.LookPath("systemd-resolved")
	}
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("namespaces need root")
	}
	testkit.Need(t, err)
	if os.Getenv(ownNetwork) != "" {
		return program
	}
	etc := t.TempDir()
	drop := filepath.Join(etc, "resolved.conf.d")
	testkit.Must(t, os.Mkdir(drop, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(drop, "safebrowsing.conf"), []byte(documentedConfig(t, "systemd-resolved")), 0o644))
	out := inNetwork(t, allNamespaces, enterOwnNetwork, etc, "true", flags...)
	for line := range strings.Lines(out) { // a table
		if _, row, found := strings.Cut(line, ": | "); found {
			t.Log("| " + strings.TrimSpace(row))
		}
	}
	return ""
}

// allNamespaces are flags of unshare for a process that is process 1 of its namespaces: with it ends all that it has started.
var allNamespaces = []string{"--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"}

// inNetwork runs the calling test in new namespaces, whose network a script makes of an argument, with a value of
// ownNetwork, and returns what it says.
func inNetwork(t *testing.T, namespaces []string, script, arg, value string, flags ...string) string {
	t.Helper()
	testkit.Program(t, "ip")
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	if out, err := exec.Command("unshare", slices.Concat(namespaces, []string{"true"})...).CombinedOutput(); err != nil {
		testkit.Need(t, fmt.Errorf("no namespaces, as in some containers: %w, %s", err, out))
	}
	c := exec.Command("unshare", slices.Concat(namespaces, []string{"sh", "-c", script, "sh", arg, os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.timeout=3m"}, flags)...)
	c.Env = append(os.Environ(), ownNetwork+"="+value)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in its own network, %s: %v\n%s", value, err, out)
	}
	return string(out)
}

// wantRow asks a resolver for the names by which clients leave, before and after keep_clients, and
// wants the answers in the table. start starts it in front of a CoreDNS that has the word.
func wantRow(t *testing.T, heading string, start func(t *testing.T, word string) (address string)) {
	t.Helper()
	cells := []string{"", heading}
	for _, word := range []string{"keep_clients off", "keep_clients"} {
		t.Run(word, func(t *testing.T) {
			at := start(t, word)
			var canaries []string
			for _, k := range answer.KeptNames[1:] {
				canaries = append(canaries, outcomeOf(askForwarder(t, at, k.Name, dns.TypeA)))
			}
			cells = append(cells, outcomeOf(askForwarder(t, at, designation, dns.TypeSVCB)), strings.Join(slices.Compact(canaries), ", "))
		})
	}
	wantCells(t, "test/README.md", cells)
}
