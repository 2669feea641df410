package test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const openwrt = "deploy/openwrt/files/"

// router is what the init script of OpenWrt works on: the functions of testdata/openwrt, whose
// state is a folder.
type router struct {
	t                *testing.T
	state, conf, run string
}

// newRouter has the configuration that the package installs, and a dnsmasq with a server of the
// operator's and one for a domain.
func newRouter(t *testing.T, options map[string][]string) *router {
	t.Helper()
	r := &router{t, t.TempDir(), t.TempDir(), t.TempDir()}
	installed, err := fs.ReadFile(repository, openwrt+"safebrowsing.config")
	testkit.Must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t(?:option|list) (\w+) '(.*)'$`).FindAllStringSubmatch(string(installed), -1) {
		if m[2] != "" {
			r.set("safebrowsing.main."+m[1], m[2])
		}
	}
	for option, values := range options {
		r.set("safebrowsing.main."+option, values...)
	}
	r.set("dhcp.@dnsmasq[0].server", "192.0.2.1", "/lan/192.0.2.2")
	return r
}

func (r *router) set(option string, values ...string) {
	writeFile(r.t, r.state, option, strings.Join(values, "\n")+"\n")
}

// do runs commands after the init script, in a new shell, as each call of it on a router is. It
// returns what they have called.
func (r *router) do(commands string) (called string) {
	r.t.Helper()
	log := filepath.Join(r.state, "log")
	_ = os.Remove(log)
	shell := []string{"sh"}
	if busybox, err := exec.LookPath("busybox"); err == nil {
		shell = []string{busybox, "sh"}
	}
	script := ". ../" + openwrt + "safebrowsing.init; . ../testdata/openwrt/rc.sh; CONF=" + r.conf + " RUN=" + r.run + " PAUSE=0.01 RESOLV=/dev/null PROG=server; " + commands
	c := exec.Command(shell[0], append(shell[1:], "-c", script)...)
	c.Env = append(os.Environ(), "STATE="+r.state)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		r.t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	raw, _ := os.ReadFile(log)
	return string(raw)
}

// servers returns what dnsmasq is told: its servers, and whether it has no others.
func (r *router) servers() string {
	all := map[string]string{}
	for _, option := range []string{"server", "noresolv"} {
		raw, _ := os.ReadFile(filepath.Join(r.state, "dhcp.@dnsmasq[0]."+option))
		all[option] = strings.Join(strings.Fields(string(raw)), " ")
	}
	return strings.TrimSpace(all["server"] + " " + all["noresolv"])
}

const before = "192.0.2.1 /lan/192.0.2.2"

// The configuration of a router becomes a Corefile with which the server blocks, and dnsmasq
// forwards to it as long as it runs.
func TestOpenWrtServiceBlocksAndHandsDnsmasqOver(t *testing.T) {
	testkit.Long(t)
	if _, err := os.Stat("/proc/net/udp"); err != nil {
		t.Skip("the script looks there for the port: ", err)
	}
	w := newWorld(t)
	port, db, lists := testkit.FreePort(t), t.TempDir(), t.TempDir()
	r := newRouter(t, map[string][]string{
		"enabled": {"1"}, "port": {port}, "db": {db}, "upstream": {w.upstream},
		"page": {"127.0.0.1:" + testkit.FreePort(t)}, "log": {"1"}, "explain": {"1"},
		"block": {writeFile(t, lists, "block.txt", "blocked.example\n")}, "allow": {"good.blocked.example"},
	})
	called := r.do("start_service")
	for _, want := range []string{"procd set_param env GOMEMLIMIT=40MiB", "procd set_param user safebrowsing", "procd add_jail safebrowsing", "procd add_jail_mount_rw " + db, "procd add_jail_mount " + lists, "procd set_param respawn 3600 5 0"} {
		if !strings.Contains(called, want+"\n") && !strings.Contains(called, want+" ") {
			t.Errorf("Expected %q in\n%s", want, called)
		}
	}
	command := regexp.MustCompile(`procd set_param command \S+ (.*)\n`).FindStringSubmatch(called)
	if command == nil {
		t.Fatalf("Expected a command in\n%s", called)
	}
	if r.servers() != before {
		t.Errorf("Expected dnsmasq to keep its servers until the service listens, got %q", r.servers())
	}
	file, found := strings.CutPrefix(command[1], "-conf ")
	corefile, err := os.ReadFile(file)
	if err != nil || !found {
		t.Fatalf("Expected the Corefile in the command %q: %v", command[1], err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)`).FindAllSubmatch(corefile, -1) {
		// cmd/coredns has a test that each build has them, that with the tag router too
		if word := string(m[1]); !slices.Contains([]string{"bind", "acl", "errors", "safebrowsing", "cache", "forward"}, word) {
			t.Errorf("Is %s in the build for routers?", word)
		}
	}
	w.start(string(corefile))
	for name, want := range map[string]int{"blocked.example.": dns.RcodeNameError, "good.blocked.example.": dns.RcodeSuccess, "clean.example.org.": dns.RcodeSuccess} {
		m, _, err := (&dns.Client{Timeout: 10 * time.Second}).Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), "127.0.0.1:"+port)
		if err != nil || m.Rcode != want {
			t.Errorf("%s: expected %s, got %v, %v", name, dns.RcodeToString[want], m, err)
		}
	}
	ours := "/lan/192.0.2.2 127.0.0.1#" + port + " 1"
	for range 2 { // a reload changes nothing
		called = r.do("RUNNING=1; service_started")
		if r.servers() != ours {
			t.Fatalf("Expected dnsmasq to have %q, got %q", ours, r.servers())
		}
	}
	if called != "" {
		t.Errorf("Expected the reload to leave flash and dnsmasq alone, got\n%s", called)
	}
	r.set("dhcp.@dnsmasq[0].server", "192.0.2.1", "/lan/192.0.2.2") // the power failed between two files
	r.set("dhcp.@dnsmasq[0].noresolv")
	if r.do("RUNNING=1; service_started"); r.servers() != ours {
		t.Errorf("Expected dnsmasq to be handed over again, got %q", r.servers())
	}
	if called = r.do("shutdown"); called != "kill safebrowsing\n" || r.servers() != ours {
		t.Errorf("Expected a shutdown of the router to change nothing, got %q after\n%s", r.servers(), called)
	}
	called = r.do("service_stopped")
	if r.servers() != "/lan/192.0.2.2 192.0.2.1" || !strings.Contains(called, "dnsmasq restart\n") || !strings.Contains(called, "commit dhcp\ncommit safebrowsing\n") {
		t.Errorf("Expected dnsmasq to have its servers back, got %q after\n%s", r.servers(), called)
	}
}

// What cannot work leaves the router with the DNS that it had, and says why.
func TestOpenWrtServiceLeavesDnsmasqAlone(t *testing.T) {
	testkit.Long(t)
	some := map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "upstream": {"192.0.2.9"}, "port": {"5335"}}
	for _, tc := range []struct {
		name    string
		options map[string][]string
		says    string
	}{
		{"not enabled", map[string][]string{"enabled": {"0"}}, ""},
		{"neither key nor list", map[string][]string{"api_key": nil}, "neither an api_key nor a list"},
		{"no resolvers yet", map[string][]string{"upstream": nil}, "starts when an interface has some"},
		{"a value that ends the stanza", map[string][]string{"db": {"/tmp/x}"}}, "letter that is not allowed"},
		{"it does not listen", nil, "does not listen on port 5335"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := maps.Clone(some)
			maps.Copy(options, map[string][]string{"db": {t.TempDir()}})
			maps.Copy(options, tc.options)
			maps.DeleteFunc(options, func(_ string, values []string) bool { return values == nil })
			r := newRouter(t, options)
			called := r.do("UDP=/nowhere; start_service; service_started")
			if r.servers() != before || !strings.Contains(called, tc.says) {
				t.Errorf("Expected dnsmasq to keep its servers and %q to be said, got %q after\n%s", tc.says, r.servers(), called)
			}
			if started := strings.Contains(called, "open_instance"); started != (tc.options == nil) {
				t.Errorf("It started: %v", started)
			}
			testkit.WantNone(t, called, "SECRET")
		})
	}
}

// dnsmasq asks nobody but the service, else half of the names pass: also if its server is an option: uci
// deletes nothing of one as it does of a list, and if somebody gives it others while the service runs.
func TestOpenWrtDnsmasqAsksNobodyElse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, option string
		values       []string
		back         string
	}{
		{"an option", "server", []string{"192.0.2.1"}, "192.0.2.1"},
		{"another server since", "server", []string{"127.0.0.1#5335", "192.0.2.7", "/lan/192.0.2.2"}, "/lan/192.0.2.2 192.0.2.7 192.0.2.1"},
		{"one for each domain since", "server", []string{"127.0.0.1#5335", "/#/192.0.2.7"}, "/#/192.0.2.7 192.0.2.1"},
		{"the resolvers of the provider since", "noresolv", []string{"0"}, "/lan/192.0.2.2 192.0.2.1"},
	} {
		r := newRouter(t, map[string][]string{"port": {"5335"}})
		udp := writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
		commands := "UDP=" + udp + "; RUNNING=1; service_started"
		if tc.name != "an option" {
			r.do(commands)
		}
		r.set("dhcp.@dnsmasq[0]."+tc.option, tc.values...)
		r.do(commands)
		if got := strings.TrimPrefix(r.servers(), "/lan/192.0.2.2 "); got != "127.0.0.1#5335 1" {
			t.Errorf("%s: expected dnsmasq to ask the service alone, got %q", tc.name, r.servers())
		}
		if called := r.do(commands); called != "" {
			t.Errorf("%s: expected the reload to change nothing, got\n%s", tc.name, called)
		}
		if r.do("service_stopped"); r.servers() != tc.back {
			t.Errorf("%s: expected dnsmasq to have %q again, got %q", tc.name, tc.back, r.servers())
		}
	}
}

// On a disk without room uci replaces a file by an empty one, and says nothing. What is not committed is in force, too.
func TestOpenWrtScriptCommitsNothingToAFullFlash(t *testing.T) {
	t.Parallel()
	for free, want := range map[string]string{"0": "", "15": "", "16": "commit safebrowsing\ncommit dhcp\n", "20000": "commit safebrowsing\ncommit dhcp\n"} {
		r := newRouter(t, map[string][]string{"port": {"5335"}})
		udp := writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
		called := r.do("df() { echo Filesystem; echo overlayfs:/overlay 20480 1 " + free + " 1% /; }; UDP=" + udp + "; RUNNING=1; service_started")
		if got := strings.Join(regexp.MustCompile("(?m)^commit .*\n").FindAllString(called, -1), ""); got != want || r.servers() != "/lan/192.0.2.2 127.0.0.1#5335 1" {
			t.Errorf("%s KiB: expected %q, got %q after\n%s", free, want, r.servers(), called)
		}
	}
}

// A sysupgrade keeps the configuration, by which dnsmasq asks the service, but not the package. The first boot after it gives
// dnsmasq its resolvers back, as does each one that does not start the service. Else it changes nothing, and is run again.
func TestOpenWrtDnsmasqHasItsResolversBackWithoutThePackage(t *testing.T) {
	t.Parallel()
	script, err := fs.ReadFile(repository, openwrt+"safebrowsing.defaults")
	testkit.Must(t, err)
	keep, err := fs.ReadFile(repository, "deploy/openwrt/package/keep")
	testkit.Must(t, err)
	testkit.WantParts(t, string(keep), "/etc/uci-defaults/safebrowsing\n")
	dir, rc := t.TempDir(), t.TempDir()
	boot := "(. " + writeFile(t, dir, "safebrowsing", strings.NewReplacer("/usr/bin", dir, "/etc/rc.d", rc).Replace(string(script))) + ")"
	init, err := fs.ReadFile(repository, openwrt+"safebrowsing.init")
	testkit.Must(t, err)
	link := "S" + string(regexp.MustCompile(`(?m)^START=(\d+)$`).FindSubmatch(init)[1]) + "safebrowsing"
	for _, noresolv := range []string{"", "1"} {
		r := newRouter(t, map[string][]string{"port": {"5335"}})
		if r.set("dhcp.@dnsmasq[0].noresolv", noresolv); noresolv == "" {
			r.do("uci delete dhcp.@dnsmasq[0].noresolv")
		}
		udp := writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
		r.do("UDP=" + udp + "; RUNNING=1; service_started")
		program := writeFile(t, dir, "coredns-safebrowsing", "")
		enabled := writeFile(t, rc, link, "")
		if called := r.do("! " + boot); called != "" || r.servers() != "/lan/192.0.2.2 127.0.0.1#5335 1" {
			t.Errorf("Expected a boot to change nothing, got %q after\n%s", r.servers(), called)
		}
		had := strings.TrimSpace("/lan/192.0.2.2 192.0.2.1 " + noresolv)
		testkit.Must(t, os.Remove(enabled)) // by "disable"
		for _, want := range []string{"commit dhcp\ncommit safebrowsing\n", ""} {
			if called := r.do("! " + boot); called != want || r.servers() != had {
				t.Errorf("Expected dnsmasq not to ask a service that no boot starts, got %q after\n%s", r.servers(), called)
			}
		}
		r.do("UDP=" + udp + "; RUNNING=1; service_started")
		testkit.Must(t, os.Remove(program))
		for _, want := range []string{"commit dhcp\ncommit safebrowsing\n", ""} {
			if called := r.do(boot); called != want || r.servers() != had {
				t.Errorf("Expected dnsmasq to have its servers back, got %q after\n%s", r.servers(), called)
			}
		}
	}
}

// The router itself, which some name as the resolver of an interface, is dnsmasq, which asks the service: queries would
// go round for ever. forward drops the zone of an address, which then leads nowhere.
func TestOpenWrtServiceDoesNotForwardToTheRouter(t *testing.T) {
	for text, want := range map[string]string{
		"# Interface wan\nnameserver 127.0.0.1\nnameserver ::1\n":                                          "",
		"nameserver 127.0.0.1\nnameserver 192.0.2.127\nnameserver fe80::1%pppoe-wan\nsearch 127.example\n": "192.0.2.127",
	} {
		r := newRouter(t, nil)
		resolv := writeFile(t, t.TempDir(), "resolv.conf.auto", text)
		if got := strings.TrimSpace(r.do("RESOLV=" + resolv + "; resolvers; note $list")); got != want {
			t.Errorf("Expected %q, got %q", want, got)
		}
	}
}

// Where no stick is mounted its folder would be in flash, which the lists would fill.
func TestOpenWrtListsAreInRAMWithoutTheStick(t *testing.T) {
	r := newRouter(t, map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "upstream": {"192.0.2.9"}, "db": {"/nowhere/safebrowsing"}})
	ram := filepath.Join(t.TempDir(), "ram")
	called := r.do("RAM=" + ram + "; start_service")
	corefile, err := os.ReadFile(filepath.Join(r.conf, "Corefile"))
	if _, made := os.Stat("/nowhere"); err != nil || made == nil || !strings.Contains(string(corefile), "db "+ram+"\n") || !strings.Contains(called, "add_jail_mount_rw "+ram+" ") || !strings.Contains(called, "is not there") {
		t.Errorf("Expected the lists in RAM, and that to be said, got %v\n%s%s", err, corefile, called)
	}
}

// What the Corefile takes for an address or for a host is allowed, and nothing that ends a word or a stanza.
func TestOpenWrtScriptTakesAddressesAndHosts(t *testing.T) {
	newRouter(t, nil).do("word '[fd00::1]:8053' && word fe80::1%eth0 && word bücher.example && ! word 'a}' && ! word 'ü}' && ! word 'a b' && ! word 'a{' && ! word '\"a'")
}

// rc.common reads the script after /lib/functions.sh. A function of the same name would replace one with which
// config_load reads lists.
func TestOpenWrtScriptReplacesNoFunctionOfTheSystem(t *testing.T) {
	script, err := fs.ReadFile(repository, openwrt+"safebrowsing.init")
	testkit.Must(t, err)
	if m := regexp.MustCompile(`(?m)^(append|prepend|list_contains|config|option|list|config_\w+|get_bool|xor|include|package|debug|board_name)\(\)`).Find(script); m != nil {
		t.Errorf("It replaces %s", m)
	}
}

// The words of a router's owner reach the server that runs, and what it answers is the exit status.
func TestOpenWrtCommandsAskTheServer(t *testing.T) {
	testkit.Long(t)
	for _, tc := range []struct{ commands, db, called, says string }{
		{"status_service", "/tmp/x", "server status", ""},
		{"! why malware.example", "/tmp/x", "server why malware.example", ""},
		{"pause 10m", "/tmp/x", "server pause 10m", ""},
		{"allow shop.example -for 1h", "/tmp/x", "server allow shop.example -for 1h", ""},
		{"allow -for 1h shop.example", "/tmp/x", "server allow -for 1h shop.example", ""},
		{"allow shop.example", "/tmp/x", "server allow shop.example", "uci add_list safebrowsing.main.allow=shop.example"},
		{"allow shop.example pay.example", "/tmp/x", "server allow shop.example pay.example", "allow=shop.example; uci add_list safebrowsing.main.allow=pay.example; uci commit"},
		{"allow shop.example", "/mnt/usb", "server allow shop.example", ""},
	} {
		r := newRouter(t, map[string][]string{"db": {tc.db}})
		called := r.do("said=$(" + tc.commands + ") && note \"said $said\"")
		if first, said, _ := strings.Cut(called, "\nsaid "); first != tc.called || tc.says == "" && said != "\n" || !strings.Contains(said, tc.says) {
			t.Errorf("%s with %s: got\n%s", tc.commands, tc.db, called)
		}
	}
	script, err := fs.ReadFile(repository, openwrt+"safebrowsing.init")
	testkit.Must(t, err)
	for _, command := range []string{"why", "pause", "allow"} {
		if !regexp.MustCompile(`(?m)^EXTRA_COMMANDS='.*\b` + command + `\b`).Match(script) {
			t.Errorf("%s is no command of the script", command)
		}
	}
}

// Only the user of the service may read the key. A service that an attacker has taken over can make root write and
// give away no file: where it may make links, root writes none.
func TestOpenWrtKeyIsInAFileOfItsOwn(t *testing.T) {
	r := newRouter(t, map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "upstream": {"192.0.2.9"}, "db": {t.TempDir()}})
	victim := writeFile(t, t.TempDir(), "shadow", "root\n")
	for _, name := range []string{"api.key", "Corefile"} {
		testkit.Must(t, os.Symlink(victim, filepath.Join(r.run, name)))
	}
	called := r.do("start_service")
	if raw, err := os.ReadFile(victim); err != nil || string(raw) != "root\n" || strings.Contains(called, r.run+"/") || strings.Contains(called, "chown safebrowsing:safebrowsing "+r.conf+"\n") {
		t.Errorf("Root followed a link, or the service may make some: %q, %v\n%s", raw, err, called)
	}
	key, corefile := filepath.Join(r.conf, "api.key"), filepath.Join(r.conf, "Corefile")
	text, err := os.ReadFile(corefile)
	if err != nil || strings.Contains(string(text), "SECRET") || !strings.Contains(string(text), "api_key_file "+key+"\n") {
		t.Errorf("Expected the name of the file of the key in the Corefile, got %v\n%s", err, text)
	}
	if raw, err := os.ReadFile(key); err != nil || string(raw) != "SECRET\n" {
		t.Errorf("Expected the key in its file, got %q, %v", raw, err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("Expected mode 600, got %v, %v", info, err)
	}
}

// The fix for OpenWrt's own coredns, run on the plugin.cfg of CoreDNS.
func TestFixOfOpenWrtsCoreDNSPutsThePluginBeforeCache(t *testing.T) {
	document, err := fs.ReadFile(repository, "deploy/openwrt/README.md")
	testkit.Must(t, err)
	fix := regexp.MustCompile(`\$\(SED\) '([^']+)'`).FindSubmatch(document)
	if fix == nil {
		t.Fatal("Expected the fix in deploy/openwrt/README.md")
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns").Output()
	testkit.Must(t, err)
	fixed, err := exec.Command("sed", "-e", string(fix[1]), filepath.Join(strings.TrimSpace(string(dir)), "plugin.cfg")).Output()
	testkit.Must(t, err)
	if n := strings.Count(string(fixed), "\nsafebrowsing:"+module+"\ncache:cache\n"); n != 1 {
		t.Errorf("Expected the plugin directly before cache, found that %d times", n)
	}
}

// A folder where others have files, such as /tmp or the top of a stick, stays theirs.
func TestOpenWrtFolderOfOthersStaysTheirs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		files string // with those of the service
		says  bool
	}{{"", false}, {"lost+found", false}, {"dhcp.leases", true}, {"notes.txt", true}, {"resolv.conf", true}} {
		db, ram := t.TempDir(), filepath.Join(t.TempDir(), "ram")
		testkit.Must(t, os.Chmod(db, 0o755))
		for _, name := range append(filesOfDB(t), strings.Fields(test.files)...) {
			writeFile(t, db, name, "")
		}
		r := newRouter(t, map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "upstream": {"192.0.2.9"}, "db": {db}})
		called := r.do("RAM=" + ram + "; start_service")
		info, err := os.Stat(db)
		testkit.Must(t, err)
		if said := strings.Contains(called, "others have files"); said != test.says || (info.Mode().Perm() == 0o755) != test.says || strings.Contains(called, "add_jail_mount_rw "+db+" ") == test.says {
			t.Errorf("With %q beside those of the service it has mode %v after\n%s", test.files, info.Mode(), called)
		}
	}
}

// filesOfDB returns names as the documents have them, of the files in db.
func filesOfDB(t *testing.T) (all []string) {
	t.Helper()
	table, _, _ := strings.Cut(sectionOf(t, "docs/formats.md", "Files in db"), "\n\n**")
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table, -1) {
		if strings.Contains(row[1], "relay/") {
			continue // has another folder
		}
		for _, m := range regexp.MustCompile("`([^`/]+)[^`]*`").FindAllStringSubmatch(row[1], -1) {
			all = append(all, strings.NewReplacer("NAME", "se-4b", "*", "schedule.json").Replace(m[1]))
		}
	}
	if len(all) < 12 {
		t.Fatalf("Expected more files in docs/formats.md than %q", all)
	}
	return all
}

// An interface that goes down takes its resolvers along: the service keeps those that it had.
func TestOpenWrtServiceOutlivesTheUplink(t *testing.T) {
	r := newRouter(t, map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "db": {t.TempDir()}})
	resolv := "RESOLV=" + writeFile(t, t.TempDir(), "resolv.conf.auto", "nameserver 192.0.2.9\nnameserver 192.0.2.10\n") + "; "
	corefile := func() string {
		raw, err := os.ReadFile(filepath.Join(r.conf, "Corefile"))
		testkit.Must(t, err)
		return string(raw)
	}
	r.do(resolv + "start_service")
	had := corefile()
	called := r.do("start_service") // the file has none any more
	if got := corefile(); got != had || !strings.Contains(called, "open_instance") || strings.Contains(called, "no resolvers yet") {
		t.Errorf("The service ends with the uplink, or changes:\n%s\n%s", got, called)
	}
}

// The server of before, which ends, may still have the port for a moment, while the new one cannot start.
func TestOpenWrtDnsmasqIsHandedOverToAServerThatStays(t *testing.T) {
	t.Parallel()
	for looks, want := range map[string]string{"1": before, "2": before, "99": "/lan/192.0.2.2 127.0.0.1#5335 1"} {
		r := newRouter(t, map[string][]string{"port": {"5335"}})
		udp := writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
		called := r.do("left=" + looks + "; sleep() { left=$((left - 1)); [ $left -gt 0 ] || : >" + udp + "; }; UDP=" + udp + "; RUNNING=1; service_started")
		if r.servers() != want || strings.Contains(called, "does not listen") != (want == before) {
			t.Errorf("The port is open for %s looks: dnsmasq has %q after\n%s", looks, r.servers(), called)
		}
	}
}

// An owner whose dnsmasq asked another resolver, as by TLS, is told that it is not asked any more, and how it would be.
func TestOpenWrtSaysWhichResolversAreNotAsked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		upstream, servers []string
		says              bool
	}{
		{nil, []string{"127.0.0.1#5053"}, true},
		{[]string{"127.0.0.1:5053"}, []string{"127.0.0.1#5053"}, false},
		{nil, []string{"/lan/192.0.2.2"}, false},
	} {
		r := newRouter(t, map[string][]string{"port": {"5335"}, "upstream": test.upstream})
		r.set("dhcp.@dnsmasq[0].server", test.servers...)
		called := r.do("UDP=" + writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n") + "; RUNNING=1; service_started")
		if got := strings.Contains(called, "127.0.0.1#5053 is not asked any more"); got != test.says || !strings.HasSuffix(r.servers(), "127.0.0.1#5335 1") {
			t.Errorf("%+v: dnsmasq has %q after\n%s", test, r.servers(), called)
		}
	}
}
