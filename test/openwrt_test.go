package test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const openwrt = "deploy/openwrt/files/"

// router is what the init script of OpenWrt works on: the functions of testdata/openwrt, whose state is a folder.
type router struct {
	t                *testing.T
	state, conf, run string
}

// newRouter has the configuration that the package installs, and a dnsmasq with a server of the operator's and one for a domain.
func newRouter(t *testing.T, options map[string][]string) *router {
	t.Helper()
	r := &router{t, t.TempDir(), t.TempDir(), t.TempDir()}
	installed := file(t, openwrt+"safebrowsing.config")
	for _, m := range regexp.MustCompile(`(?m)^\t(?:option|list) (\w+) '(.*)'$`).FindAllStringSubmatch(installed, -1) {
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

// do runs commands after the init script, in a new shell, as each call of it on a router is. It returns what they have called.
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

// serve runs commands after a service of port 5335 listens, and hands dnsmasq over to it.
func (r *router) serve(commands string) (called string) {
	r.t.Helper()
	udp := writeFile(r.t, r.t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
	return r.do(commands + "UDP=" + udp + "; RUNNING=1; service_started")
}

// port5335 are the options of a service that serve starts.
var port5335 = map[string][]string{"port": {"5335"}}

// protecting are the options of a service that start_service starts.
func protecting(db string) map[string][]string {
	return map[string][]string{"enabled": {"1"}, "api_key": {"SECRET"}, "upstream": {"192.0.2.9"}, "port": {"5335"}, "db": {db}}
}

// before and ours are the servers of dnsmasq before and after.
const before, ours = "192.0.2.1 /lan/192.0.2.2", "/lan/192.0.2.2 127.0.0.1#5335 1"

// The configuration of a router becomes a Corefile with which the server blocks, and dnsmasq forwards to it as long as it runs.
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
	testkit.WantParts(t, strings.ReplaceAll(called, "\n", " "), "set_param env GOMEMLIMIT=40MiB ", "set_param user safebrowsing ",
		"add_jail safebrowsing ", "add_jail_mount_rw "+db+" ", "add_jail_mount "+lists+" ", "set_param respawn 3600 5 0 ")
	_, path, _ := strings.Cut(called, "procd set_param command server -conf ")
	path, _, _ = strings.Cut(path, "\n")
	testkit.Equal(t, "the servers of dnsmasq until the service listens", r.servers(), before)
	corefile := testkit.Read(t, path)
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)`).FindAllStringSubmatch(corefile, -1) {
		// cmd/coredns has a test that each build has them, that with the tag router too
		known := []string{"bind", "acl", "errors", "safebrowsing", "cache", "forward"}
		testkit.Equal(t, m[1]+" is in the build for routers", slices.Contains(known, m[1]), true)
	}
	w.start(corefile)
	w.elsewhere = "127.0.0.1:" + port
	w.wantBlocked("blocked.example.", dns.TypeA, "blocklist block.txt")
	w.wantPassed("good.blocked.example.", dns.TypeA)
	w.wantPassed("clean.example.org.", dns.TypeA)
	ours := strings.Replace(ours, "5335", port, 1)
	for range 2 { // a reload changes nothing
		called = r.do("RUNNING=1; service_started")
		testkit.Equal(t, "the servers of dnsmasq", r.servers(), ours)
	}
	testkit.Equal(t, "changes of flash and dnsmasq by the reload", called, "")
	r.set("dhcp.@dnsmasq[0].server", "192.0.2.1", "/lan/192.0.2.2") // the power failed between two files
	r.set("dhcp.@dnsmasq[0].noresolv")
	r.do("RUNNING=1; service_started")
	testkit.Equal(t, "the servers, handed over again", r.servers(), ours)
	testkit.Equal(t, "a shutdown of the router", r.do("shutdown"), "kill safebrowsing\n")
	testkit.Equal(t, "the servers after it", r.servers(), ours)
	called = r.do("service_stopped")
	testkit.Equal(t, "the servers of dnsmasq, back", r.servers(), "/lan/192.0.2.2 192.0.2.1")
	testkit.WantParts(t, called, "dnsmasq restart\n", "commit dhcp\ncommit safebrowsing\n")
}

// What cannot work leaves the router with the DNS that it had, and says why.
func TestOpenWrtServiceLeavesDnsmasqAlone(t *testing.T) {
	testkit.Long(t)
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
			options := protecting(t.TempDir())
			maps.Copy(options, tc.options)
			maps.DeleteFunc(options, func(_ string, values []string) bool { return values == nil })
			r := newRouter(t, options)
			called := r.do("UDP=/nowhere; start_service; service_started")
			testkit.Equal(t, "the servers of dnsmasq", r.servers(), before)
			testkit.WantParts(t, called, tc.says)
			testkit.Equal(t, "started", strings.Contains(called, "open_instance"), tc.options == nil)
			testkit.WantNone(t, called, "SECRET")
		})
	}
}

// dnsmasq asks nobody but the service, else half of the names pass: also if its server is an option: uci
// deletes nothing of one as it does of a list, and if somebody gives it others while the service runs.
func TestOpenWrtDnsmasqAsksNobodyElse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, option, values, back string }{
		{"an option", "server", "192.0.2.1", "192.0.2.1"},
		{"another server since", "server", "127.0.0.1#5335 192.0.2.7 /lan/192.0.2.2", "/lan/192.0.2.2 192.0.2.7 192.0.2.1"},
		{"one for each domain since", "server", "127.0.0.1#5335 /#/192.0.2.7", "/#/192.0.2.7 192.0.2.1"},
		{"the resolvers of the provider since", "noresolv", "0", "/lan/192.0.2.2 192.0.2.1"},
	} {
		r := newRouter(t, port5335)
		if tc.name != "an option" {
			r.serve("")
		}
		r.set("dhcp.@dnsmasq[0]."+tc.option, strings.Fields(tc.values)...)
		r.serve("")
		testkit.Equal(t, tc.name+": the service alone", strings.TrimPrefix(r.servers(), "/lan/192.0.2.2 "), "127.0.0.1#5335 1")
		testkit.Equal(t, tc.name+": changes by a reload", r.serve(""), "")
		r.do("service_stopped")
		testkit.Equal(t, tc.name+": the servers again", r.servers(), tc.back)
	}
}

// On a disk without room uci replaces a file by an empty one, and says nothing. What is not committed is in force, too.
func TestOpenWrtScriptCommitsNothingToAFullFlash(t *testing.T) {
	t.Parallel()
	for free, want := range map[string]string{"0": "", "15": "", "16": "commit safebrowsing\ncommit dhcp\n", "20000": "commit safebrowsing\ncommit dhcp\n"} {
		r := newRouter(t, port5335)
		called := r.serve("df() { echo Filesystem; echo overlayfs:/overlay 20480 1 " + free + " 1% /; }; ")
		testkit.Equal(t, free+" KiB", strings.Join(regexp.MustCompile("(?m)^commit .*\n").FindAllString(called, -1), ""), want)
		testkit.Equal(t, free+" KiB: servers", r.servers(), ours)
	}
}

// A sysupgrade keeps the configuration, by which dnsmasq asks the service, but not the package. The first boot after it gives
// dnsmasq its resolvers back, as does each one that does not start the service. Else it changes nothing, and is run again.
func TestOpenWrtDnsmasqHasItsResolversBackWithoutThePackage(t *testing.T) {
	t.Parallel()
	script := file(t, openwrt+"safebrowsing.defaults")
	testkit.WantParts(t, file(t, "deploy/openwrt/package/keep"), "/etc/uci-defaults/safebrowsing\n")
	dir, rc := t.TempDir(), t.TempDir()
	boot := "(. " + writeFile(t, dir, "safebrowsing", strings.NewReplacer("/usr/bin", dir, "/etc/rc.d", rc).Replace(script)) + ")"
	link := "S" + regexp.MustCompile(`(?m)^START=(\d+)$`).FindStringSubmatch(file(t, openwrt+"safebrowsing.init"))[1] + "safebrowsing"
	for _, noresolv := range []string{"", "1"} {
		r := newRouter(t, port5335)
		if noresolv != "" {
			r.set("dhcp.@dnsmasq[0].noresolv", noresolv)
		}
		r.serve("")
		program := writeFile(t, dir, "coredns-safebrowsing", "")
		enabled := writeFile(t, rc, link, "")
		testkit.Equal(t, "changes by a boot", r.do("! "+boot), "")
		testkit.Equal(t, "servers after a boot", r.servers(), ours)
		had := strings.TrimSpace("/lan/192.0.2.2 192.0.2.1 " + noresolv)
		testkit.Must(t, os.Remove(enabled)) // by "disable"
		wantBack := func(boot string) {
			t.Helper()
			for _, want := range []string{"commit dhcp\ncommit safebrowsing\n", ""} {
				testkit.Equal(t, "commits", r.do(boot), want)
				testkit.Equal(t, "the servers of before", r.servers(), had)
			}
		}
		wantBack("! " + boot)
		r.serve("")
		testkit.Must(t, os.Remove(program))
		wantBack(boot)
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
		testkit.Equal(t, "resolvers", strings.TrimSpace(r.do("RESOLV="+resolv+"; resolvers; note $list")), want)
	}
}

// Where no stick is mounted its folder would be in flash, which the lists would fill.
func TestOpenWrtListsAreInRAMWithoutTheStick(t *testing.T) {
	r, ram := newRouter(t, protecting("/nowhere/safebrowsing")), filepath.Join(t.TempDir(), "ram")
	called := r.do("RAM=" + ram + "; start_service")
	testkit.WantParts(t, testkit.Read(t, filepath.Join(r.conf, "Corefile")), "db "+ram+"\n")
	testkit.WantParts(t, called, "add_jail_mount_rw "+ram+" ", "is not there")
	_, err := os.Stat("/nowhere")
	testkit.Is(t, "a folder in flash", err, os.ErrNotExist)
}

// What the Corefile takes for an address or for a host is allowed, and nothing that ends a word or a stanza.
func TestOpenWrtScriptTakesAddressesAndHosts(t *testing.T) {
	newRouter(t, nil).do("word '[fd00::1]:8053' && word fe80::1%eth0 && word bücher.example && ! word 'a}' && ! word 'ü}' && ! word 'a b' && ! word 'a{' && ! word '\"a'")
}

// rc.common reads the script after /lib/functions.sh. A function of the same name would replace one with which
// config_load reads lists.
func TestOpenWrtScriptReplacesNoFunctionOfTheSystem(t *testing.T) {
	theirs := regexp.MustCompile(`(?m)^(append|prepend|list_contains|config|option|list|config_\w+|get_bool|xor|include|package|debug|board_name)\(\)`)
	testkit.Equal(t, "replaced", theirs.FindString(file(t, openwrt+"safebrowsing.init")), "")
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
		first, said, _ := strings.Cut(called, "\nsaid ")
		testkit.Equal(t, tc.commands+" with "+tc.db, first, tc.called)
		testkit.Equal(t, said+": something is said", said != "\n", tc.says != "")
		testkit.WantParts(t, said, tc.says)
	}
	commands := regexp.MustCompile(`(?m)^EXTRA_COMMANDS='(.*)'$`).FindStringSubmatch(file(t, openwrt+"safebrowsing.init"))
	testkit.WantParts(t, fmt.Sprintf("%q", strings.Fields(commands[1])), `"why"`, `"pause"`, `"allow"`)
}

// Only the user of the service may read the key. A service that an attacker has taken over can make root write and
// give away no file: where it may make links, root writes none.
func TestOpenWrtKeyIsInAFileOfItsOwn(t *testing.T) {
	r, victim := newRouter(t, protecting(t.TempDir())), writeFile(t, t.TempDir(), "shadow", "root\n")
	for _, name := range []string{"api.key", "Corefile"} {
		testkit.Must(t, os.Symlink(victim, filepath.Join(r.run, name)))
	}
	called := r.do("start_service")
	testkit.Equal(t, "where a link leads that the service made", testkit.Read(t, victim), "root\n")
	testkit.WantNone(t, called, r.run+"/", "chown safebrowsing:safebrowsing "+r.conf+"\n")
	key, corefile := filepath.Join(r.conf, "api.key"), filepath.Join(r.conf, "Corefile")
	text := testkit.Read(t, corefile)
	testkit.WantNone(t, text, "SECRET")
	testkit.WantParts(t, text, "api_key_file "+key+"\n")
	testkit.Equal(t, "the file of the key", testkit.Read(t, key), "SECRET\n")
	info, err := os.Stat(key)
	testkit.Must(t, err)
	testkit.Equal(t, "its mode", info.Mode(), 0o600)
}

// The fix for OpenWrt's own coredns, run on the plugin.cfg of CoreDNS.
func TestFixOfOpenWrtsCoreDNSPutsThePluginBeforeCache(t *testing.T) {
	fix := regexp.MustCompile(`\$\(SED\) '([^']+)'`).FindStringSubmatch(file(t, "deploy/openwrt/README.md"))
	if fix == nil {
		t.Fatal("Expected the fix in deploy/openwrt/README.md")
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns").Output()
	testkit.Must(t, err)
	fixed, err := exec.Command("sed", "-e", fix[1], filepath.Join(strings.TrimSpace(string(dir)), "plugin.cfg")).Output()
	testkit.Must(t, err)
	testkit.Equal(t, "the plugin directly before cache", strings.Count(string(fixed), "\nsafebrowsing:"+module+"\ncache:cache\n"), 1)
}

// A folder where others have files, such as /tmp or the top of a stick, stays theirs.
func TestOpenWrtFolderOfOthersStaysTheirs(t *testing.T) {
	t.Parallel()
	for file, theirs := range map[string]bool{"lock": false, "lost+found": false, "dhcp.leases": true, "notes.txt": true, "resolv.conf": true} {
		db, ram := t.TempDir(), filepath.Join(t.TempDir(), "ram")
		testkit.Must(t, os.Chmod(db, 0o755))
		for _, name := range append(filesOfDB(t), file) {
			writeFile(t, db, name, "")
		}
		called := newRouter(t, protecting(db)).do("RAM=" + ram + "; start_service")
		info, err := os.Stat(db)
		testkit.Must(t, err)
		said, used := strings.Contains(called, "others have files"), strings.Contains(called, "add_jail_mount_rw "+db+" ")
		got := [3]bool{said, info.Mode().Perm() == 0o755, used}
		testkit.Equal(t, file+": it is said, the mode stays, the folder is used", got, [3]bool{theirs, theirs, !theirs})
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
	found(t, "files in docs/formats.md", len(all), 12)
	return all
}

// An interface that goes down takes its resolvers along: the service keeps those that it had.
func TestOpenWrtServiceOutlivesTheUplink(t *testing.T) {
	options := protecting(t.TempDir())
	delete(options, "upstream")
	r := newRouter(t, options)
	corefile := func() string { return testkit.Read(t, filepath.Join(r.conf, "Corefile")) }
	r.do("RESOLV=" + writeFile(t, t.TempDir(), "resolv.conf.auto", "nameserver 192.0.2.9\nnameserver 192.0.2.10\n") + "; start_service")
	had := corefile()
	called := r.do("start_service") // the file has none any more
	testkit.Equal(t, "the Corefile", corefile(), had)
	testkit.WantParts(t, called, "open_instance")
	testkit.WantNone(t, called, "no resolvers yet")
}

// The server of before, which ends, may still have the port for a moment, while the new one cannot start.
func TestOpenWrtDnsmasqIsHandedOverToAServerThatStays(t *testing.T) {
	t.Parallel()
	for looks, want := range map[string]string{"1": before, "2": before, "99": ours} {
		r := newRouter(t, port5335)
		udp := writeFile(t, t.TempDir(), "udp", "  1: 0100007F:14D7 00000000:0000\n")
		called := r.do("left=" + looks + "; sleep() { left=$((left - 1)); [ $left -gt 0 ] || : >" + udp + "; }; UDP=" + udp + "; RUNNING=1; service_started")
		testkit.Equal(t, looks+" looks: servers", r.servers(), want)
		testkit.Equal(t, looks+" looks: it is said", strings.Contains(called, "does not listen"), want == before)
	}
}

// An owner whose dnsmasq asked another resolver, as by TLS, is told that it is not asked any more, and how it would be.
func TestOpenWrtSaysWhichResolversAreNotAsked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		upstream, server string
		says             bool
	}{{"", "127.0.0.1#5053", true}, {"127.0.0.1:5053", "127.0.0.1#5053", false}, {"", "/lan/192.0.2.2", false}} {
		r := newRouter(t, map[string][]string{"port": {"5335"}, "upstream": strings.Fields(test.upstream)})
		r.set("dhcp.@dnsmasq[0].server", test.server)
		says := strings.Contains(r.serve(""), "127.0.0.1#5053 is not asked any more")
		testkit.Equal(t, fmt.Sprintf("%+v: it is said", test), says, test.says)
		testkit.Equal(t, fmt.Sprintf("%+v: asked", test), strings.HasSuffix(r.servers(), "127.0.0.1#5335 1"), true)
	}
}
