package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/programtest"
)

// forwarder is a resolver that runs in front of ours.
type forwarder struct {
	program, heading string                                    // of the section of the document
	config           func(documented, dir, port string) string // completes the documented lines
	args             func(file string) []string
	keepsError       bool
}

var forwarders = []forwarder{
	{"unbound", "Unbound", func(documented, dir, port string) string {
		return strings.Replace(documented, "server:", "server:\n    interface: 127.0.0.1\n    port: "+port+`
    username: ""
    chroot: ""
    pidfile: ""
    use-syslog: no
    do-not-query-localhost: no
    directory: "`+dir+`"`, 1)
	}, func(file string) []string { return []string{"-d", "-c", file} }, false},
	{"named", "BIND", func(documented, dir, port string) string {
		return strings.Replace(documented, "options {", `options {
    directory "`+dir+`";
    pid-file none;
    session-keyfile none;
    listen-on-v6 { none; };
    listen-on port `+port+` { 127.0.0.1; };`, 1) + "controls { };\n"
	}, func(file string) []string { return []string{"-g", "-c", file} }, false},
	{"dnsmasq", "dnsmasq", func(documented, _, port string) string {
		return documented + "port=" + port + "\nlisten-address=127.0.0.1\nbind-interfaces\nno-hosts\nuser=" + os.Getenv("USER") + "\n"
	}, func(file string) []string { return []string{"--no-daemon", "--conf-file=" + file} }, true},
}

// TestResolversInFront runs the resolvers of docs/resolvers.md with the lines that are
// there.
func TestResolversInFront(t *testing.T) {
	skipIfShort(t, "starts other resolvers")
	w := newWorld(t)
	w.start(w.corefile("test blocked.example"))
	w.updated(1)
	host, port, err := net.SplitHostPort(w.address("udp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forwarders {
		t.Run(f.program, func(t *testing.T) {
			program, err := exec.LookPath(f.program)
			if err != nil {
				if os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			at := map[string]string{"unbound": host + "@" + port, "named": host + " port " + port, "dnsmasq": host + "#" + port}[f.program]
			documented := strings.ReplaceAll(documentedConfig(t, f.heading), "192.0.2.53", at)
			address := runForwarder(t, f, program, documented)
			for _, tc := range []struct {
				name  string
				rcode int
			}{{"blocked.example.", dns.RcodeNameError}, {"clean.example.org.", dns.RcodeSuccess}} {
				m := askForwarder(t, address, tc.name)
				if m.Rcode != tc.rcode {
					t.Errorf("%s: expected %s, got\n%v", tc.name, dns.RcodeToString[tc.rcode], m)
				}
				if tc.rcode != dns.RcodeNameError {
					continue
				}
				if _, kept := ede(m); kept != f.keepsError {
					t.Errorf("the document says whether the Extended DNS Error is passed on: %t, got %t\n%v", f.keepsError, kept, m)
				}
			}
		})
	}
}

// documentedConfig returns the lines of a section of docs/resolvers.md.
func documentedConfig(t *testing.T, heading string) string {
	_, text, ok := strings.Cut(documents(t)["docs/resolvers.md"], "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	all := blocks(text, "txt")
	if !ok || len(all) != 1 {
		t.Fatalf("Expected a section %s with one block, got %d", heading, len(all))
	}
	return all[0]
}

// runForwarder runs a resolver until the test ends, and returns its address.
func runForwarder(t *testing.T, f forwarder, program, documented string) string {
	dir := t.TempDir()
	port := programtest.FreePort(t)
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(f.config(documented, dir, port)), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, f.args(file)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s", text)
		}
	})
	return "127.0.0.1:" + port
}

// askForwarder asks until the resolver runs.
func askForwarder(t *testing.T, address, name string) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	m.SetEdns0(1232, false)
	var err error
	for range 100 {
		var r *dns.Msg
		if r, err = dns.Exchange(m, address); err == nil {
			return r
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal(fmt.Errorf("%s: %w", name, err))
	return nil
}
