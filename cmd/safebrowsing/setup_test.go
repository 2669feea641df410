package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Commercial use needs Web Risk, whose searches cost money: setup writes no Corefile without a budget.
func TestSetupOfWebRiskHasABudget(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "key", testkit.Key+"\n")
	for _, test := range []struct{ typed, flags, want string }{
		{"\n", "-protocol webrisk", "protocol webrisk\n\t\tbudget 200 "},
		{"", "-protocol webrisk -budget 50", "budget 50 "},
		{"", "-protocol webrisk -budget 0", "error: a budget is a number of searches a day"},
		{"many\n", "-protocol webrisk", "error: a budget is a number of searches a day, such as 200, not \"many\""},
		{"", "-budget 50", "error: -budget is for -protocol webrisk"},
		{"", "-protocol v6", "error: -protocol is v5 or webrisk"},
	} {
		i := newInstalled(t)
		_, err := i.setup(test.typed, append(strings.Fields(test.flags), "-key-file", file, "-upstream", "9.9.9.9", "-serve", "machine", "-yes")...)
		got := read(t, i.path("Corefile"))
		if err != nil {
			got = "error: " + err.Error()
		}
		testkit.WantParts(t, got, test.want)
	}
}

// What Google answers, by its documents and by reports of users.
const (
	notEnabled = "Safe Browsing API has not been used in project 123456789 before or it is disabled. Enable it by visiting https://console.developers.google.com/apis/api/safebrowsing.googleapis.com/overview?project=123456789 then retry."
	invalid    = "API key not valid. Please pass a valid API key."
	restricted = "Requests to this API safebrowsing.googleapis.com method google.security.safebrowsing.v5.SafeBrowsing.ListHashLists are blocked."
)

func TestRefusalsOfAKeySayWhatToDoInTheConsole(t *testing.T) {
	for _, test := range []struct {
		code               int
		message, why, cure string
	}{
		{400, invalid, "Google does not know the key", "39 letters"},
		{400, "API key expired. Please renew the API key.", "expired", "new one"},
		{403, notEnabled, "not enabled in the key's project, which is number 123456789", "safebrowsing.googleapis.com?project=123456789"},
		{403, restricted, "restricted to other APIs", "API restrictions"},
		{403, "The provided API key has an IP address restriction. The originating IP address of the call (192.0.2.7) violates this restriction.", "restricted to other IP addresses", "application restrictions"},
		{403, "Requests from referer <empty> are blocked.", "restricted to web sites", "application restrictions"},
		{403, "Requests from this Android client application <empty> are blocked.", "Android", "application restrictions"},
		{403, "Requests from this iOS client application <empty> are blocked.", "iOS", "application restrictions"},
		{403, "Permission denied: Consumer 'api_key:x' has been suspended.", "suspended", "another project"},
		{403, "This API method requires billing to be enabled. Please enable billing on project #5.", "billing", "Safe Browsing API"},
		{403, "something new", "status 403 Forbidden: something new", "/apis/credentials"},
		{429, "Quota exceeded", "quota", "midnight"},
	} {
		r := refusalOf(&updater.StatusError{Code: test.code, Message: test.message})
		testkit.WantParts(t, r.why, test.why)
		testkit.WantParts(t, r.cure, test.cure)
	}
	expect(t, "a server with a fault has refused no key", refusalOf(&updater.StatusError{Code: 503}), nil)
}

// google is a Safe Browsing server that refuses keys in Google's words.
func google(t *testing.T) (endpoint string, requests *int) {
	t.Helper()
	lists, _ := protocoltest.Small(t)
	lists.SetKey(testkit.Key)
	requests = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		key := r.Header.Get("X-Goog-Api-Key")
		if key == testkit.Key {
			lists.ServeHTTP(w, r)
			return
		}
		message := cmp.Or(map[string]string{"not-enabled": notEnabled, "restricted": restricted}[key], invalid)
		code := map[bool]int{true: 400, false: 403}[message == invalid]
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":%q}}`, code, message)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// installed is a machine with the package, whose commands are noted and not run.
type installed struct {
	t    *testing.T
	root string
	machine
	ran   []string
	fails string // the command, or "ask ADDRESS", that fails
}

// newInstalled returns a machine on which these have port 53.
func newInstalled(t *testing.T, holders ...holder) *installed {
	t.Helper()
	i := &installed{t: t, root: t.TempDir()}
	i.machine = machine{holders: holders, networks: home(), resolvers: []netip.Addr{netip.MustParseAddr("192.168.1.1")}, systemd: true, blocked: "malware.example"}
	testkit.Must(t, os.MkdirAll(filepath.Join(i.root, setupFolder), 0o755))
	for _, name := range []string{"Corefile", "block.txt", "allow.txt"} {
		write(t, i.path(name), read(t, "../../deploy/package/"+name))
	}
	return i
}

func (i *installed) path(name string) string { return filepath.Join(i.root, setupFolder, name) }

// setup runs the command with what is typed.
func (i *installed) setup(typed string, args ...string) (out string, err error) {
	i.t.Helper()
	i.ran = nil
	note := func(words string) error {
		i.ran = append(i.ran, words)
		if words == i.fails {
			return errors.New("it fails")
		}
		return nil
	}
	c := setupIn(setupWorld{
		i.root, func(string) *machine { return &i.machine },
		func(_ context.Context, words []string) error { return note(strings.Join(words, " ")) },
		func(_ context.Context, q *question) error { return note("ask " + q.at.String() + " for " + q.name) },
	})
	var w strings.Builder
	c.Reader, c.Writer = strings.NewReader(typed), &w
	err = c.Run(i.t.Context(), append([]string{"setup"}, args...))
	return w.String(), err
}

func (i *installed) done(typed string, args ...string) (out string) {
	i.t.Helper()
	out, err := i.setup(typed, args...)
	testkit.Must(i.t, err)
	return out
}

// refused runs the command, which fails with these words and changes nothing.
func (i *installed) refused(typed string, args []string, parts ...string) {
	i.t.Helper()
	before := i.files()
	_, err := i.setup(typed, args...)
	testkit.WantError(i.t, err, parts...)
	expect(i.t, "files", i.files(), before)
}

// files returns the paths, modes and contents of all files.
func (i *installed) files() (all []string) {
	i.t.Helper()
	testkit.Must(i.t, filepath.WalkDir(i.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, gone := d.Info()
			testkit.Must(i.t, gone)
			all = append(all, fmt.Sprintf("%s %v\n%s", strings.TrimPrefix(path, i.root), info.Mode(), read(i.t, path)))
		}
		return err
	}))
	return all
}

// flagsWith are those that answer all questions, with a server that has a key.
func flagsWith(t *testing.T, more ...string) []string {
	endpoint, _ := google(t)
	key := testkit.Write(t, t.TempDir(), "key", testkit.Key+"\n")
	return append([]string{"-endpoint", endpoint, "-key-file", key, "-upstream", "9.9.9.9", "-serve", "192.168.1.0/24", "-yes"}, more...)
}

// withoutKey are the flags of who has no key, without -serve.
func withoutKey(more ...string) []string {
	return append([]string{"-no-key", "-lists", "all", "-upstream", "9.9.9.9", "-yes"}, more...)
}

// wantKey wants the key in its file, which nobody else may read.
func (i *installed) wantKey() {
	i.t.Helper()
	info, err := os.Stat(i.path("safebrowsing.key"))
	testkit.Must(i.t, err)
	expect(i.t, "mode", info.Mode(), 0o600)
	expect(i.t, "the key", read(i.t, i.path("safebrowsing.key")), testkit.Key+"\n")
}

func TestSetupConfiguresThePackage(t *testing.T) {
	i := newInstalled(t, at("coredns", "coredns.service", "::"))
	before := read(t, i.path("Corefile"))
	write(t, i.path("safebrowsing.key"), "by hand\n") // which others may read
	testkit.Must(t, os.Chmod(i.path("safebrowsing.key"), 0o644))
	flags := flagsWith(t)
	out := i.done("", flags...)
	i.wantKey()
	copies, _ := filepath.Glob(i.path("Corefile.*"))
	expect(t, "copies", len(copies), 1)
	expect(t, "the old Corefile", read(t, copies[0]), before)
	testkit.WantParts(t, read(t, i.path("Corefile")),
		"\n. {\n", "\tbind 192.168.1.2\n", "allow net 127.0.0.0/8 192.168.1.0/24\n", "\tforward . 9.9.9.9\n")
	expect(t, "it ran", i.ran, []string{
		"/usr/bin/coredns-safebrowsing -check -conf /etc/coredns-safebrowsing/Corefile",
		"systemctl disable --now coredns.service", "systemctl enable --quiet coredns-safebrowsing.service",
		"systemctl restart coredns-safebrowsing.service", "ask 192.168.1.2:53 for malware.example", "ask 192.168.1.2:53 for example.com",
	})
	testkit.WantParts(t, out, "Corefile. The old one is "+copies[0]+".", "DNS server 192.168.1.2, and no second one")
	testkit.WantNone(t, out, testkit.Key)
	i.holders = nil
	all := i.files()
	i.done("", flags...)
	expect(t, "files after a second time", i.files(), all)
	for _, serve := range []string{"machine", "192.168.1.0/24", "machine"} { // within a second
		i.done("", withoutKey("-serve", serve)...)
	}
	copies, _ = filepath.Glob(i.path("Corefile.*"))
	expect(t, "copies", len(copies), 4)
}

// A second setup may move the server from behind another resolver to the network. Then that one must not keep asking
// where nobody answers: the machine itself, or whom it serves, would have no names.
func TestSetupThatMovesTheServerTellsWhoWasInFront(t *testing.T) {
	for file, test := range map[string]struct {
		holder      holder
		asks, after string
	}{
		resolvedFile("").path: {at("systemd-resolve", "systemd-resolved.service", "127.0.0.53"), "\nDNS=127.0.0.1:1053\n", "[Resolve]\n"},
		dnsmasqFile:           {at("dnsmasq", "dnsmasq.service", "127.0.0.1"), "\nserver=127.0.0.1#1053\n", "# safebrowsing setup: dnsmasq no longer asks the server\n"},
	} {
		i := newInstalled(t, test.holder)
		front := filepath.Join(i.root, file)
		i.done("", flagsWith(t, "-serve", "machine")...)
		testkit.WantParts(t, read(t, front), test.asks)
		i.led = see(i.root).led
		testkit.Must(t, os.Remove(i.path("Corefile"))) // its copy of this second is there
		i.done("", flagsWith(t)...)
		testkit.WantParts(t, read(t, i.path("Corefile")), "bind 192.168.1.2\n")
		expect(t, test.holder.name, read(t, front), test.after)
		expect(t, "at last it ran", i.ran[len(i.ran)-1], "systemctl try-restart "+test.holder.unit)
		expect(t, "setup would do it again and again", see(i.root).led, nil)
	}
}

// runScript runs a script of the package on files below root, with commands of systemd that are noted.
func runScript(t *testing.T, root, script string, args ...string) (ran string) {
	t.Helper()
	note := filepath.Join(root, "ran")
	write(t, note, "")
	testkit.Must(t, errors.Join(os.MkdirAll(filepath.Join(root, "bin"), 0o755), os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755)))
	testkit.Must(t, os.WriteFile(filepath.Join(root, "bin/systemctl"), []byte("#!/bin/sh\necho \"$@\" >>"+note+"\n"), 0o755))
	testkit.Must(t, errors.Join(os.RemoveAll(filepath.Join(root, "bin/deb-systemd-invoke")), os.Symlink("systemctl", filepath.Join(root, "bin/deb-systemd-invoke"))))
	text := strings.NewReplacer("/etc/", root+"/etc/", "/run/", root+"/run/", "/var/", root+"/var/").Replace(read(t, "../../deploy/package/"+script))
	c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", text, script}, args...)...)
	c.Env = []string{"PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH")}
	out, err := c.CombinedOutput()
	expect(t, script+string(out), err, nil)
	return read(t, note)
}

// Without the server a resolver that asks only it would have no names. One that asks a server elsewhere stays.
func TestARemovedPackageLeavesNoResolverInFront(t *testing.T) {
	loop := netip.MustParseAddr("127.0.0.1")
	for _, p := range []place{behindResolved(&holder{}), behindDnsmasq(&holder{unit: "dnsmasq.service"}, loop)} {
		elsewhere := strings.NewReplacer("127.0.0.1", "192.0.2.53", ":1053", "", "#1053", "").Replace(p.file.text)
		for with, removed := range map[[2]string]bool{ // 0 and 1 are of rpm
			{"remove", p.file.text}: true, {"0", p.file.text}: true, {"upgrade", p.file.text}: false, {"1", p.file.text}: false,
			{"remove", elsewhere}: false,
		} {
			root := t.TempDir()
			path := writeBelow(t, root, p.file.path, with[1])
			ran := runScript(t, root, "prerm", with[0])
			expect(t, fmt.Sprint(p.file.path, " is there with ", with), exists(path), !removed)
			expect(t, "it is told: "+ran, strings.Contains(ran, "try-restart "+p.unit+"\n"), removed)
		}
	}
}

// Where systemd-resolved made room on the network it serves the network again, once the server has ended; not if the
// package comes back, which needs the room.
func TestARemovedPackageGivesTheNetworkBackToSystemdResolved(t *testing.T) {
	p := placeFor(&machine{holders: []holder{at("systemd-resolve", "systemd-resolved.service", "192.168.1.2")}}, home()[:1])
	again := "try-restart " + p.unit + "\n"
	for arg, removed := range map[string]bool{"remove": true, "0": true, "upgrade": false} {
		root := t.TempDir()
		path := writeBelow(t, root, p.file.path, p.file.text)
		ran := runScript(t, root, "prerm", arg)
		expect(t, "it is there with "+arg, exists(path), !removed)
		_, after, _ := strings.Cut(ran, "stop ")
		told := [2]int{strings.Count(ran, again), strings.Count(after, again)}
		expect(t, "its unit is told after it: "+ran, told, map[bool][2]int{true: {1, 1}}[removed])
		if arg != "remove" {
			continue
		}
		ran = runScript(t, root, "postinst", "configure", "1.2.3")
		expect(t, "the package is back, and its file", exists(path), true)
		before, _, _ := strings.Cut(ran, "\nstart "+setupUnit+"\n")
		testkit.WantParts(t, before, again)
	}
}

// dpkg tells an upgrade and an installation after a removal by the same words: what was enabled starts after both, and
// a resolver that was in front is so again.
func TestADebThatComesBackStarts(t *testing.T) {
	root := t.TempDir()
	fronts := []place{behindResolved(&holder{}), behindDnsmasq(&holder{unit: "dnsmasq.service"}, loopback)}
	front := func(p place) string { return filepath.Join(root, p.file.path) }
	for _, p := range fronts {
		writeBelow(t, root, p.file.path, p.file.text)
	}
	corefile := writeBelow(t, root, filepath.Join(setupFolder, "Corefile"), corefileFor(&answers{}, fronts[0]))
	link := enable(t, root)
	testkit.WantNone(t, runScript(t, root, "prerm", "remove"), "disable")
	ran := runScript(t, root, "postinst", "configure", "1.2.3")
	testkit.WantParts(t, ran, "\nstart "+setupUnit+"\n")
	for _, p := range fronts { // they ask the server that is back
		testkit.WantParts(t, ran, "try-restart "+p.unit+"\n")
		expect(t, p.unit, read(t, front(p)), p.file.text)
	}
	runScript(t, root, "prerm", "remove")
	write(t, corefile, corefileFor(&answers{}, place{at: []netip.Addr{loopback}, port: 53}))
	runScript(t, root, "postinst", "configure", "1.2.3")
	expect(t, "a resolver asks where the server no longer listens", [2]bool{exists(front(fronts[0])), exists(front(fronts[1]))}, [2]bool{})
	runScript(t, root, "postrm", "purge")
	_, err := os.Lstat(link)
	testkit.Is(t, "the link that enables the service, after a purge", err, fs.ErrNotExist)
	for _, p := range fronts {
		left, _ := filepath.Glob(front(p) + "*")
		expect(t, "after a purge", left, nil)
	}
}

// enable enables the service, as systemctl does, and returns the link that says so.
func enable(t *testing.T, root string) (link string) {
	t.Helper()
	link = filepath.Join(root, "etc/systemd/system/multi-user.target.wants", setupUnit)
	testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/lib/systemd/system/"+setupUnit, link)))
	return link
}

func TestSetupThatFailsLeavesEverythingAsBefore(t *testing.T) {
	dnsmasq, coredns := at("dnsmasq", "dnsmasq.service", "::"), at("coredns", "coredns.service", "::")
	const check, restart = "/usr/bin/coredns-safebrowsing -check -conf /etc/coredns-safebrowsing/Corefile", "systemctl restart coredns-safebrowsing.service"
	for _, test := range []struct {
		fails  string
		holder holder
		after  []string // what is run after it, if all that runs starts with the machine
	}{
		{check, coredns, []string{}},
		{"systemctl disable --now coredns.service", coredns, []string{"systemctl enable --now coredns.service"}},
		{restart, coredns, []string{restart, "systemctl enable --now coredns.service"}},
		{"ask 192.168.1.2:53 for malware.example", coredns, []string{restart, "systemctl enable --now coredns.service"}},
		{"ask 192.168.1.2:53 for example.com", coredns, []string{restart, "systemctl enable --now coredns.service"}}, // no resolver answers
		{"ask 127.0.0.1:1053 for malware.example", dnsmasq, []string{restart}},
		{"systemctl restart dnsmasq.service", dnsmasq, []string{"systemctl restart dnsmasq.service", restart}},
		{"ask 192.168.1.2:53 for example.com", dnsmasq, []string{"systemctl restart dnsmasq.service", restart}},
	} {
		i := newInstalled(t, test.holder)
		i.fails, i.enabled = test.fails, []string{"coredns.service", setupUnit}
		testkit.Must(t, errors.Join(os.Rename(i.path("Corefile"), i.path("mine")), os.Symlink("mine", i.path("Corefile"))))
		i.refused("", flagsWith(t), "it fails")
		expect(t, "after "+test.fails, i.ran[slices.Index(i.ran, test.fails)+1:], test.after)
	}
}

// A unit that did not run, or does not start with the machine, is left so.
func TestSetupThatFailsStartsNothingElse(t *testing.T) {
	const other = "systemctl start coredns.service"
	stop, disable, restart := "systemctl stop "+setupUnit, "systemctl disable --quiet "+setupUnit, "systemctl restart "+setupUnit
	for _, test := range []struct {
		enabled, runs bool
		after         []string
	}{
		{false, false, []string{stop, disable, other}},
		{false, true, []string{restart, disable, other}},
		{true, false, []string{restart, other}},
		{true, true, []string{restart, other}},
	} {
		i := newInstalled(t)
		if test.enabled {
			enable(t, i.root)
		}
		if test.runs {
			writeBelow(t, i.root, "proc/103/cgroup", "0::/system.slice/"+setupUnit+"\n")
		}
		seen := see(i.root)
		i.enabled, i.runs = seen.enabled, seen.runs
		i.holders, i.fails = []holder{at("coredns", "coredns.service", "::")}, "ask 192.168.1.2:53 for example.com"
		_, err := i.setup("", flagsWith(t)...)
		testkit.WantError(t, err)
		expect(t, fmt.Sprintf("%+v: then it ran", test), i.ran[slices.Index(i.ran, i.fails)+1:], test.after)
	}
}

func TestSetupChangesNothingInADryRun(t *testing.T) {
	i := newInstalled(t, at("dnsmasq", "dnsmasq.service", "::"))
	before := i.files()
	out := i.done("", flagsWith(t, "-dry-run")...)
	expect(t, "it ran", i.ran, nil)
	expect(t, "files", i.files(), before)
	testkit.WantParts(t, out, "write /etc/coredns-safebrowsing/safebrowsing.key (mode 600)\n    (the key)\n", "write /etc/dnsmasq.d/safebrowsing.conf", "    server=127.0.0.1#1053\n", "run systemctl restart dnsmasq.service\n", "ask 127.0.0.1:1053 for malware.example\n")
	testkit.WantNone(t, out, testkit.Key)
}

// A person types the answers: none of Google's keys, all lists, the second network, and no change of the other resolver.
func TestSetupAsks(t *testing.T) {
	i := newInstalled(t, at("coredns", "coredns.service", "10.0.0.2"))
	out := i.done("\n\nlots\n,\n1,phishing-database,1\n7\n2,10.0.0.2\nno\n")
	corefile := read(t, i.path("Corefile"))
	testkit.WantParts(t, corefile, ".:1053 {", "bind 127.0.0.1\n", publicLists[2].url, "forward . 192.168.1.1\n")
	for text, n := range map[string]int{publicLists[1].url: 0, publicLists[0].url: 1, "10.0.0.0/8": 1} {
		expect(t, text, strings.Count(corefile, text), n)
	}
	for _, l := range publicLists {
		testkit.WantParts(t, out, l.name+" ("+l.licence+")")
	}
	testkit.WantParts(t, out, `"lots" is no list`, `"," is no list`, `no address in "7"`, "coredns keeps port 53")
	i.refused("\n", nil, "-key-file or -no-key") // the flag that answers the question
}

// A key is tried once before it is used. One that Google refuses is not written.
func TestSetupTriesTheKey(t *testing.T) {
	for key, want := range map[string]string{
		testkit.Key:            "",
		"AIza-of-nobody-known": "Google does not know the key",
		"not-enabled":          "the Safe Browsing API is not enabled in the key's project, which is number 123456789",
		"restricted":           "the key is restricted to other APIs",
		"/etc/key.txt":         "holds a path",
	} {
		endpoint, requests := google(t)
		i := newInstalled(t)
		file := testkit.Write(t, t.TempDir(), "key", key+"\n")
		flags := []string{"-endpoint", endpoint, "-key-file", file, "-upstream", "9.9.9.9", "-serve", "machine", "-yes"}
		if want != "" {
			i.refused("", flags, want)
			expect(t, "it ran", i.ran, nil)
			continue
		}
		i.done("", flags...)
		i.wantKey()
		expect(t, "requests", *requests, 1)
	}
}

// A key cannot be tried where nobody vouches for the server: setup says what a new machine lacks.
func TestSetupSaysWhyNoAuthorityVouches(t *testing.T) {
	err := tryKey(t.Context(), untrusted(t, http.NotFoundHandler()).URL, testkit.Key, nil)
	testkit.WantError(t, err, "Set the clock, and install the system's root certificates")
	expect(t, "the key is refused", errors.As(err, new(*keyRefusal)), false)
}

// The server's name is looked up where the new Corefile does so.
func TestSetupTriesTheKeyByTheResolversToForwardTo(t *testing.T) {
	var asked sync.Map
	resolver := answering(t, func(m *dns.Msg) {
		m.Rcode, m.Answer = dns.RcodeNameError, nil
		asked.Store(m.Question[0].Name, true)
	})
	err := tryKey(t.Context(), "https://google.example", testkit.Key, []string{resolver.String()})
	testkit.WantError(t, err)
	expect(t, "the key is refused", errors.As(err, new(*keyRefusal)), false)
	_, ok := asked.Load("google.example.")
	expect(t, "the resolver was asked", ok, true)
	expect(t, "ports", fmt.Sprint([]string{withPort("9.9.9.9"), withPort("2620:fe::fe"), withPort("192.0.2.1:5353")}), "[9.9.9.9:53 [2620:fe::fe]:53 192.0.2.1:5353]")
}

// Ctrl-C at a question ends setup, and nothing is changed.
func TestSetupCanBeInterruptedAtAQuestion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits, never := io.Pipe()
	defer never.Close()
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := newAsker(waits, io.Discard).hidden(ctx, "Key", "-key-file")
	testkit.WantError(t, err, context.Canceled.Error())
}

// A server that forwards to itself, or to who asks it, would answer nothing.
func TestSetupForwardsToNobodyWhoAsksIt(t *testing.T) {
	dnsmasq := []holder{at("dnsmasq", "dnsmasq.service", "::")}
	for _, test := range []struct {
		serve          int
		holders        []holder
		upstream, want string
	}{
		{0, nil, "127.0.0.1", "127.0.0.1"},
		{0, nil, "127.0.0.1:5335", ""},
		{1, nil, "127.0.0.1", ""},
		{1, nil, "192.168.1.2:53", "192.168.1.2:53"},
		{1, dnsmasq, "192.168.1.2", "192.168.1.2"},
		{1, dnsmasq, "127.0.0.1:1053", "127.0.0.1:1053"},
		{1, dnsmasq, "192.168.1.1", ""},
		{0, nil, "::ffff:127.0.0.1", "::ffff:127.0.0.1"},
		{1, nil, "[::FFFF:192.168.1.2]:053", "[::FFFF:192.168.1.2]:053"},
	} {
		p := placeFor(&machine{holders: test.holders}, home()[:test.serve])
		expect(t, fmt.Sprint(test), asksItself(&answers{upstream: []string{"9.9.9.9", test.upstream}}, p), test.want)
	}
}

func TestWhatSetupRefuses(t *testing.T) {
	dnsmasq, other := []holder{at("dnsmasq", "dnsmasq.service", "::")}, []string{"/etc/dnsmasq.conf: server=9.9.9.9"}
	noNetwork := func(i *installed) { i.networks = nil }
	for _, test := range []struct {
		alter func(i *installed)
		flags []string
		want  string
	}{
		{func(i *installed) { i.root = t.TempDir() }, flagsWith(t), "setup configures the package"},
		{func(*installed) {}, withoutKey("-serve", "machine", "-upstream", "127.0.0.1"), "would ask itself at 127.0.0.1"},
		// A second upstream of dnsmasq would let blocked names through by chance.
		{func(i *installed) { i.holders, i.servers = dnsmasq, other }, flagsWith(t), "by /etc/dnsmasq.conf: server=9.9.9.9"},
		// A file that dnsmasq does not read leads nobody here, and its old resolvers would answer.
		{func(i *installed) { i.holders, i.unread = dnsmasq, true }, flagsWith(t), "add conf-dir=/etc/dnsmasq.d to"},
		// All networks of a machine without one are not this machine only.
		{noNetwork, withoutKey("-serve", "all"), `this machine has no address in "all"`},
		{noNetwork, withoutKey("-serve", ""), `this machine has no address in ""`},
		{noNetwork, withoutKey("-serve", "192.168.1.0/24"), `this machine has no address in "192.168.1.0/24"`},
	} {
		i := newInstalled(t)
		test.alter(i)
		i.refused("", test.flags, test.want)
	}
	i := newInstalled(t) // dnsmasq has not port 53
	i.servers = other
	i.done("", flagsWith(t)...)
}

// One with -keep outlives the restart, and is no fault of the configuration.
func TestSetupAsksForNoBlockedNameInAPause(t *testing.T) {
	i := newInstalled(t)
	db := filepath.Join(i.root, setupLists)
	testkit.Must(t, os.MkdirAll(db, 0o755))
	expect(t, "name", see(i.root).blocked, "malware.example")
	write(t, block.PauseFile(db), string(block.FormatPauses([]block.Pause{{Zone: block.AllBlocks, From: time.Now(), Until: time.Now().Add(time.Hour), Keep: true}})))
	expect(t, "name in a pause", see(i.root).blocked, "")
}

// systemd-resolved takes another resolver, too, from a file that it reads after the one of setup.
func TestSetupLeavesSystemdResolvedNoOtherUpstream(t *testing.T) {
	for file, refused := range map[string]bool{"etc/systemd/resolved.conf.d/vpn.conf": true, "run/systemd/resolved.conf.d/zz.conf": true, "etc/systemd/resolved.conf.d/dns.conf": false, "etc/systemd/resolved.conf.d/vpn.conf~": false} {
		i := newInstalled(t)
		path := writeBelow(t, i.root, file, "[Resolve]\n#DNS=192.0.2.1\nDNS=\nFallbackDNS=192.0.2.1\n")
		expect(t, file+" names nobody", see(i.root).later, nil)
		write(t, path, "[Resolve]\nDNS = 192.0.2.1\n")
		i.holders, i.later = []holder{at("systemd-resolve", "systemd-resolved.service", "127.0.0.53")}, see(i.root).later
		if flags := flagsWith(t, "-serve", "machine"); refused {
			i.refused("", flags, "systemd-resolved would also ask another resolver", path+": DNS = 192.0.2.1")
		} else {
			i.done("", flags...)
		}
	}
}

func TestSetupSeesWhetherDnsmasqReadsItsFile(t *testing.T) {
	root := t.TempDir()
	for _, test := range []struct {
		conf, words string
		unread      bool
	}{
		{"#conf-dir=/etc/dnsmasq.d\nconf-dir=/etc/dnsmasq.more\n", "dnsmasq\x00-k", true},
		{" conf-dir = /etc/dnsmasq.d/,*.conf\n", "dnsmasq\x00-k", false},
		{"", "/usr/sbin/dnsmasq\x00-7\x00/etc/dnsmasq.d,.dpkg-dist", false}, // Debian
		{"", "/usr/sbin/dnsmasq\x00--conf-dir=/etc/dnsmasq.d", false},
	} {
		writeBelow(t, root, "etc/dnsmasq.conf", test.conf)
		writeBelow(t, root, "proc/102/comm", "dnsmasq\n")
		writeBelow(t, root, "proc/102/cmdline", test.words+"\x00")
		expect(t, fmt.Sprintf("%+v", test), see(root).unread, test.unread)
	}
}

// The file of dnsmasq that setup writes was changed by hand: dnsmasq must not read what is kept of it.
func TestSetupKeepsAFileWhereDnsmasqDoesNotReadIt(t *testing.T) {
	i := newInstalled(t, at("dnsmasq", "dnsmasq.service", "::"))
	file := writeBelow(t, i.root, dnsmasqFile, "server=9.9.9.9\n")
	i.done("", flagsWith(t)...)
	copies, _ := filepath.Glob(file + ".*")
	kept, _ := filepath.Glob(file + ".*~")
	expect(t, "copies", copies, kept)
	expect(t, "one copy", len(copies), 1)
	testkit.WantNone(t, read(t, file), "9.9.9.9")
}

func TestSetupTellsWhatBlocksNothing(t *testing.T) {
	for lists, want := range map[string]bool{"none": true, "urlhaus": false} {
		out := newInstalled(t).done("", "-no-key", "-lists", lists, "-serve", "machine", "-upstream", "9.9.9.9")
		expect(t, lists, strings.Contains(out, "only the names in block.txt"), want)
	}
}

// A key of Web Risk, or the token of a relay, is no key for Google: a second setup that keeps it keeps its server, too.
func TestSetupAgainKeepsTheServerOfAKeyThatStays(t *testing.T) {
	for _, test := range []struct{ line, flags string }{
		{"protocol webrisk", "-protocol webrisk -budget 50"},
		{"endpoint http://192.168.1.3:8099", "-endpoint http://192.168.1.3:8099"},
	} {
		i := newInstalled(t)
		i.hasKey = true
		write(t, i.path("Corefile"), ". {\n\tsafebrowsing {\n\t\t"+test.line+" # why\n\t}\n}\n")
		again := []string{"-no-key", "-upstream", "9.9.9.9", "-serve", "machine", "-yes"}
		i.refused("", again, "give -"+test.line)
		i.done("", append(again, strings.Fields(test.flags)...)...)
		testkit.WantParts(t, read(t, i.path("Corefile")), "\t"+test.line+"\n")
	}
}

// A machine that asks itself has no other resolver: a second setup proposes the ones of the first, with their encryption.
func TestSetupAgainForwardsAsBefore(t *testing.T) {
	const byTLS = "tls://9.9.9.9%dns.quad9.net"
	i := newInstalled(t)
	i.resolvers = nil
	again := []string{"-no-key", "-lists", "none", "-serve", "machine", "-yes"}
	for _, test := range []struct{ typed, proposed, forward string }{
		{byTLS, "9.9.9.9 149.112.112.112", byTLS},
		{"", byTLS, byTLS},
		{"192.168.1.1", byTLS, "192.168.1.1"},
		{"", "192.168.1.1", "192.168.1.1"},
	} {
		testkit.WantParts(t, i.done(test.typed+"\n", again...), "["+test.proposed+"]")
		testkit.WantParts(t, read(t, i.path("Corefile")), "\tforward . "+test.forward+"\n")
	}
}

// Who has chosen public lists keeps them, also with a key, unless told otherwise.
func TestSetupAgainKeepsPublicLists(t *testing.T) {
	i := newInstalled(t)
	for _, test := range []struct{ typed, flags, want, says string }{
		{"urlhaus\n", "-no-key", "urlhaus", "[all]"},
		{"\n", "-no-key", "urlhaus", "[urlhaus]"},
		{"1,2\n", "-no-key", "hagezi-tif urlhaus", "[urlhaus]"},
		{"", "key", "hagezi-tif urlhaus", "stay: hagezi-tif, urlhaus."},
		{"", "key -lists phishing-database", "phishing-database", ""},
		{"", "key -lists none", "", ""},
		{"", "key", "", ""},
	} {
		flags := append([]string{"-upstream", "9.9.9.9", "-serve", "machine", "-yes"}, strings.Fields(test.flags)...)
		if more, ok := strings.CutPrefix(test.flags, "key"); ok {
			flags = flagsWith(t, strings.Fields(more)...)
		}
		testkit.WantParts(t, i.done(test.typed, flags...), test.says)
		var got []string
		for _, l := range publicLists {
			if strings.Contains(read(t, i.path("Corefile")), l.url) {
				got = append(got, l.name)
			}
		}
		expect(t, fmt.Sprintf("%+v", test), strings.Join(got, " "), test.want)
	}
}
