package story

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var (
	adguardProgram = flag.String("daily.adguardhome", "", "the program of AdGuard Home, for TestDailyQuestions; default: the one in PATH")
	blockyProgram  = flag.String("daily.blocky", "", "the program of blocky, for TestDailyQuestions; default: the one in PATH")
)

// Each question of an ordinary day is answered by one command, whose words answer it and which does what it
// says. Where another server needs fewer letters the row says why. test/README.md has the table.
func TestDailyQuestions(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	ours, paid := dailyServers(t)
	adguard, blocky := dailyAdGuard(t), dailyBlocky(t)
	table := []string{
		"| question | this plugin | AdGuard Home | blocky | Pi-hole | not first, because |",
		"| --- | --- | --- | --- | --- | --- |",
	}
	for _, row := range dailyRows {
		at := ours
		if strings.Contains(row.asks, "cost") {
			at = paid
		}
		cells := []string{row.asks, at.answer(row, row.ours), adguard.answer(row, row.adguard), blocky.answer(row, row.blocky), row.pihole.cell(0), cmp.Or(row.notFirst, "–")}
		table = append(table, "| "+strings.Join(cells, " | ")+" |")
		mine, theirs := row.ours.letters(), []int{}
		for _, other := range []typed{row.adguard, row.blocky, row.pihole} {
			if other.line != "" {
				theirs = append(theirs, other.letters())
			}
		}
		if beaten := len(theirs) > 0 && slices.Min(theirs) < mine; beaten != (row.notFirst != "") {
			t.Errorf("%s: ours has %d letters, the others %d, and the reason is %q", row.asks, mine, theirs, row.notFirst)
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
	written := withoutSeconds(testkit.Read(t, "../README.md"))
	for _, line := range table {
		if line = withoutSeconds(line); !strings.Contains(written, line+"\n") {
			t.Errorf("test/README.md does not have the row\n%s", line)
		}
	}
}

// withoutSeconds removes what was measured: it is another one on each machine.
func withoutSeconds(text string) string {
	return regexp.MustCompile(`, [0-9.]+ s\b`).ReplaceAllString(text, "")
}

// letters counts what is typed, with spaces and sudo, and without what stands for something.
func (w typed) letters() int {
	return utf8.RuneCountInString(strings.NewReplacer("NAME", "", "FILE", "").Replace(w.line))
}

// cell is what the table says. 0: not measured.
func (w typed) cell(took time.Duration) string {
	var parts []string
	if w.line != "" {
		line := "`" + strings.ReplaceAll(w.line, "|", `\|`) + "`"
		if strings.HasPrefix(w.line, "curl ") { // its lines are in this test
			line = "API"
		}
		line += fmt.Sprintf(": %d", w.letters())
		if took > 0 {
			line += fmt.Sprintf(", %.2f s", took.Seconds())
		}
		parts = append(parts, line)
	}
	switch {
	case w.clicks == 1:
		parts = append(parts, "1 click")
	case w.clicks > 1:
		parts = append(parts, fmt.Sprintf("%d clicks", w.clicks))
	case w.instead != "":
		parts = append(parts, w.instead)
	}
	return strings.Join(parts, "; ")
}

// dailyServer is a server that is asked.
type dailyServer struct {
	t     *testing.T
	dir   string   // where commands run
	paths string   // of programs, before those of the machine
	env   []string // as the service manager of an installed server has it
	dns   string   // port
	web   string   // port, that 3000 in a line stands for
}

// dailyRuns is how often a line is run: the table has the median.
const dailyRuns = 3

// answer types a line, looks at the answer, and waits for what it promises. It returns the cell of the table.
func (s *dailyServer) answer(row dailyRow, w typed) string {
	if s == nil || w.line == "" || w.says == nil {
		return w.cell(0)
	}
	s.t.Helper()
	line := strings.NewReplacer("sudo ", "", "NAME", row.about, "FILE", "kids.txt", "localhost:3000", "127.0.0.1:"+s.web).Replace(w.line)
	var took []time.Duration
	for range dailyRuns {
		begun := time.Now()
		out := s.run(line)
		if row.then != "" && !s.becomes(row) {
			s.t.Errorf("%s: %s is not %s after %s, which says:\n%s", row.asks, row.about, row.then, line, out)
		}
		took = append(took, time.Since(begun))
		wantAll(s.t, line, out, w.says...)
	}
	slices.Sort(took)
	return w.cell(took[dailyRuns/2])
}

// run returns what a line writes. Bad news has an exit status other than 0.
func (s *dailyServer) run(line string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Dir = s.dir
	shell.Env = append(os.Environ(), append(s.env, "PATH="+s.paths+":"+os.Getenv("PATH"))...)
	out, _ := shell.CombinedOutput()
	return string(out)
}

// becomes waits until the host of a row is what the row promises, and for other clients is not.
func (s *dailyServer) becomes(row dailyRow) bool {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); s.blocks(row.about, cmp.Or(row.client, "127.0.0.1")) != (row.then == "blocked"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return row.client == "" || s.blocks(row.about, "127.0.0.1") != (row.then == "blocked")
}

// blocks asks for a host as a client.
func (s *dailyServer) blocks(host, client string) bool {
	c := dns.Client{Timeout: time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}}
	r, _, err := c.Exchange(new(dns.Msg).SetQuestion(host+".", dns.TypeA), "127.0.0.1:"+s.dns)
	return err == nil && r.Rcode == dns.RcodeNameError
}

// ask asks for what rows are about: a name that is blocked, and one that passes.
func (s *dailyServer) ask() {
	s.t.Helper()
	if !s.blocks("bad.example", "127.0.0.1") || s.blocks("fine.example.com", "127.0.0.1") {
		s.t.Error("bad.example passes, or fine.example.com is blocked")
	}
}

// ownNames are what the operator blocks.
const ownNames = "0.0.0.0 shop.example\n0.0.0.0 false.example\n0.0.0.0 kids.example\n"

// dailyServers starts our server as a household has it, and one with Web Risk.
func dailyServers(t *testing.T) (free, paid *dailyServer) {
	t.Helper()
	free = startDaily(t, "")
	free.ask()
	return free, startDaily(t, "protocol webrisk\n\t\tbudget 200\n\t\t")
}

// startDaily starts our server, before a service that lists bad.example, and waits until it protects.
func startDaily(t *testing.T, properties string) *dailyServer {
	t.Helper()
	google := serviceWith(t, "bad.example/")
	service := httptest.NewServer(google)
	t.Cleanup(service.Close)
	dir := t.TempDir()
	s := &dailyServer{t: t, dir: dir, paths: filepath.Dir(programs(t)["safebrowsing"]), env: []string{"RUNTIME_DIRECTORY=" + dir}, dns: testkit.FreePort(t)}
	testkit.Write(t, dir, "safebrowsing.key", "AIzaRIGHT\n")
	testkit.Write(t, dir, "block.txt", ownNames)
	testkit.Write(t, dir, "kids.txt", "# empty on purpose\n")
	block := func(view, allow string) string {
		return fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	%s
	safebrowsing {
		%sendpoint %s
		api_key_file %s/safebrowsing.key
		db %s/db
		block %s/block.txt
		%s
		log
		look_back 1h
	}
	template ANY ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
	forward lan.example 192.0.2.53 192.0.2.54
}
`, s.dns, view, properties, service.URL, dir, dir, dir, allow)
	}
	file := testkit.Write(t, dir, "Corefile", block("view family {\n\t\texpr client_ip() == '127.0.0.2'\n\t}", "allow "+dir+"/kids.txt")+block("", ""))
	process := testkit.StartWith(t, s.env, programs(t)["coredns"], "-conf", file)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(process.Output())
		}
	})
	testkit.Until(t, "our server protects", func() bool { return strings.HasPrefix(s.run("safebrowsing"), "Protected by ") })
	return s
}

// dailyPeer prepares the folder of another server, "" if its program is not here. The names that ours blocks
// are in the file names of it.
func dailyPeer(t *testing.T, name, program string) (s *dailyServer, path, upstream string) {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(program, name))
	if err != nil {
		if program != "" {
			t.Fatal(err)
		}
		t.Logf("%s is not in PATH, and its seconds are not measured: see -daily.%s", name, strings.ToLower(name))
		return nil, "", ""
	}
	dir := t.TempDir()
	s = &dailyServer{t: t, dir: dir, paths: dir, dns: testkit.FreePort(t), web: testkit.FreePort(t)}
	testkit.Must(t, os.Symlink(path, filepath.Join(dir, name)))
	testkit.Write(t, dir, "names", ownNames+"0.0.0.0 bad.example\n")
	upstream = testkit.FreePort(t)
	file := testkit.Write(t, dir, "upstream", ".:"+upstream+" {\n\tbind 127.0.0.1\n\ttemplate ANY ANY {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}\n}\n")
	testkit.Start(t, programs(t)["coredns"], "-conf", file)
	return s, path, upstream
}

// startPeer starts another server and waits until it blocks.
func (s *dailyServer) startPeer(path string, args ...string) *dailyServer {
	s.t.Helper()
	process := testkit.Start(s.t, path, args...)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(process.Output())
		}
	})
	testkit.Until(s.t, filepath.Base(path)+" blocks", func() bool { return s.blocks("bad.example", "127.0.0.1") })
	s.ask()
	return s
}

// dailyAdGuard starts AdGuard Home; nil: it is not here. Nobody has to log in.
func dailyAdGuard(t *testing.T) *dailyServer {
	t.Helper()
	s, path, upstream := dailyPeer(t, "AdGuardHome", *adguardProgram)
	if s == nil {
		return nil
	}
	file := testkit.Write(t, s.dir, "AdGuardHome.yaml", fmt.Sprintf(`schema_version: 34
http:
  address: 127.0.0.1:%s
users: []
dns:
  bind_hosts: [127.0.0.1]
  port: %s
  upstream_dns: ["127.0.0.1:%s"]
  bootstrap_dns: ["127.0.0.1:%s"]
  ratelimit: 0
  hostsfile_enabled: false
querylog:
  enabled: true
  file_enabled: false
  interval: 24h
  size_memory: 1000
statistics:
  enabled: true
  interval: 24h
filters:
  - enabled: true
    url: %s/names
    name: names
    id: 1
filtering:
  filtering_enabled: true
  protection_enabled: true
  blocking_mode: nxdomain
  filters_update_interval: 24
  safe_fs_patterns: ["%s/names"]
`, s.web, s.dns, upstream, upstream, s.dir, s.dir))
	filters := filepath.Join(s.dir, "data", "filters")
	testkit.Must(t, os.MkdirAll(filters, 0o700))
	testkit.Write(t, filters, "1.txt", testkit.Read(t, filepath.Join(s.dir, "names")))
	return s.startPeer(path, "-c", file, "-w", s.dir, "--no-check-update", "--no-permcheck")
}

// dailyBlocky starts blocky; nil: it is not here. Its commands find config.yml in the folder where they run.
func dailyBlocky(t *testing.T) *dailyServer {
	t.Helper()
	s, path, upstream := dailyPeer(t, "blocky", *blockyProgram)
	if s == nil {
		return nil
	}
	file := testkit.Write(t, s.dir, "config.yml", fmt.Sprintf(`upstreams:
  groups:
    default: ["tcp+udp:127.0.0.1:%s"]
blocking:
  denylists:
    lists: ["%s/names"]
  clientGroupsBlock:
    default: [lists]
  blockType: nxDomain
statistics: {enable: true}
ports: {dns: "127.0.0.1:%s", http: "127.0.0.1:%s"}
`, upstream, s.dir, s.dns, s.web))
	return s.startPeer(path, "--config", file, "serve")
}
