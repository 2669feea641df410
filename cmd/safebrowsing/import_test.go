package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// importTests are files as the other programs write them, and names with what the made server block
// does about them. The files NAME.want have what import prints.
var importTests = []struct{ name, files, blocked, passing string }{
	{
		"pihole", "adlist.csv domainlist.csv",
		"bad.example wild.example a.wild.example",
		"www.bad.example fine.example good.example kids.example fine.wild.example ads1.example a.gone.example",
	},
	{
		"pihole6", "pihole.toml adlist.csv domainlist.csv",
		"bad.example wild.example a.wild.example",
		"www.bad.example fine.example good.example nas.example",
	},
	{
		"adguardhome", "AdGuardHome.yaml",
		"tree.example a.tree.example host.example hosts.example www.hosts.example a.below.example only.example good.example a.good.example www.only.good.example firm.example wild.example a.wild.example " +
			"first.hosts.example a.first.example a.dotted.example",
		"fine.tree.example a.fine.tree.example www.host.example below.example a.only.example only.good.example client.example answer.example ads1.example part.example nas2.example a.quiet.example " +
			"second.quiet.example a.parent.example b.first.example a.loud.example dotted.example",
	},
	{
		"blocky", "blocky.yml",
		"host.example tree.example a.tree.example a.fine.tree.example exact.example hosts.example www.hosts.example any.example",
		"www.host.example fine.tree.example a.exact.example banner-1.example two words",
	},
	{"blocky-old", "blocky-old.yml", "host.example", "www.host.example fine.example"},
	{
		"unbound", "unbound.conf",
		"own.example a.own.example bad.fine.own.example exact.example a.below.example nodata.example local.example",
		"a.lan fine.own.example a.fine.own.example a.exact.example below.example fine.below.example tcp.example",
	},
	{
		"zone", "policy.zone",
		"exact.example a.below.example nodata.example local.example",
		"a.exact.example below.example fine.below.example tcp.example",
	},
}

// inImports changes to the folder with the files of other programs.
func inImports(t *testing.T) (here string) {
	t.Helper()
	t.Setenv("SAFEBROWSING_API_KEY", "")
	here, err := filepath.Abs(filepath.Join("testdata", "import"))
	testkit.Must(t, err)
	t.Chdir(here)
	return here
}

func TestImportPrintsWhatComesAlongAndWhatDoesNot(t *testing.T) {
	here := inImports(t)
	for _, tt := range importTests {
		out := run(t, append([]string{"import", "-dry-run"}, strings.Fields(tt.files)...)...).want(0).quiet().out
		expect(t, tt.name, strings.ReplaceAll(out, here, "HERE"), read(t, tt.name+".want"))
		expect(t, tt.name+": -dry-run has written", exists("imported"), false)
	}
}

func TestAnImportedConfigurationDecides(t *testing.T) {
	here := inImports(t)
	t.Chdir(t.TempDir()) // a list that is a relative path is beside the file that names it
	for _, tt := range importTests {
		dir := filepath.Join(t.TempDir(), "a b") // which has to be quoted
		args := []string{"import", "-out", dir}
		for name := range strings.FieldsSeq(tt.files) {
			args = append(args, filepath.Join(here, name))
		}
		run(t, args...).want(0, "Next: safebrowsing validate").quiet()
		all := blocksOf(t, filepath.Join(dir, "Corefile"))
		expect(t, tt.name+": server blocks", len(all), 1)
		expect(t, tt.name+": it is for all", all[0].isOpen(), false)
		for blocked, names := range map[bool]string{true: tt.blocked, false: tt.passing} {
			for _, name := range strings.Fields(names) {
				h, _ := lookup.ParseHost(name)
				expect(t, tt.name+" blocks "+name, all[0].Explain(h, name+".").Verdict == lookup.Unsafe, blocked)
			}
		}
	}
}

// The address of a list may be another's choice: a space that only a Corefile takes for one adds no word.
func TestAListOfAnImportIsOneWord(t *testing.T) {
	inImports(t)
	for _, space := range []string{"\u00a0", "\u0085", "\u2028", "\v"} {
		dir, source := t.TempDir(), "https://lists.example/a.txt"+space+"wide"
		table := testkit.Write(t, dir, "adlist.csv", "id,address,enabled\n1,"+source+",1\n")
		run(t, "import", "-out", filepath.Join(dir, "out"), table).want(0)
		for _, own := range blocksOf(t, filepath.Join(dir, "out", "Corefile"))[0].Config.Own {
			if f := own.Fetch; f.URL != "" {
				expect(t, "the list, and whether it is wide", fmt.Sprintf("%s %t", f.URL, f.Wide), source+" false")
			}
		}
	}
}

func TestImportReplacesNothing(t *testing.T) {
	inImports(t)
	dir := t.TempDir()
	mine := testkit.Write(t, dir, "allow.txt", "mine.example\n")
	run(t, "import", "-out", dir, "blocky-old.yml").want(2, "allow.txt is there: remove it, or choose another folder with -out")
	expect(t, "my file", read(t, mine), "mine.example\n")
	expect(t, "a Corefile was written", exists(filepath.Join(dir, "Corefile")), false)
}

func TestImportPrintsOneObject(t *testing.T) {
	inImports(t)
	dir := filepath.Join(t.TempDir(), "new")
	all := decode[importReport](t, run(t, "import", "-json", "-out", dir, "-upstream", "tls://9.9.9.9%dns.quad9.net", "blocky.yml").want(0).out)
	r := all[0]
	expect(t, "from and into", [2]string{r.From, r.Folder}, [2]string{"blocky", dir})
	expect(t, "lists", [2]importCount{r.Block, r.Allow}, [2]importCount{{1, 6}, {1, 1}})
	expect(t, "reports, upstreams, expressions", [3]int{len(all), len(r.Forward), r.Counts["regular expression"]}, [3]int{1, 1, 1})
	expect(t, "it was written", r.Written, true)
	for _, f := range r.Files {
		expect(t, f.Path, string(f.Text), read(t, f.Path))
	}
	testkit.WantStart(t, r.Left[0].String(), fmt.Sprintf("blocky.yml:%d: ", max(1, r.Left[0].Line)))
}

// teleporter is a backup of Pi-hole 5 with these files.
func teleporter(t testing.TB, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for name, content := range files {
		testkit.Need(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		testkit.Need(t, err)
	}
	testkit.Need(t, w.Close())
	testkit.Need(t, zipped.Close())
	return b.String()
}

func TestABackupOfPihole5IsRead(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "backup.tar.gz", teleporter(t, map[string]string{
		"adlist.json":          `[{"id":1,"address":"https://lists.example.net/a.txt","enabled":1,"comment":null}, {"id":2,"address":"https://lists.example.net/b.txt","enabled":false}]`,
		"blacklist.exact.json": `[{"id":1,"type":1,"domain":"bad.example","enabled":1}]`,
		"whitelist.exact.json": `[{"id":2,"type":0,"domain":"good.example","enabled":true}]`,
		"blacklist.regex.json": `[{"id":3,"domain":"(^|\\.)wild\\.example$","enabled":1}, {"id":4,"domain":"^ads","enabled":1}]`,
		"client.json":          `[{"id":1,"ip":"192.0.2.5","comment":"tablet"}]`,
		"group.json":           `[{"id":0,"name":"Default"}, {"id":1,"name":"kids"}]`,
		"custom.list":          "192.0.2.10 nas.example\n",
		"setupVars.conf":       "PIHOLE_INTERFACE=eth0\nPIHOLE_DNS_1=127.0.0.1#5335\nPIHOLE_DNS_2=9.9.9.9\nREV_SERVER=true\nDHCP_ACTIVE=true\nBLOCKING_ENABLED=false\n",
		"dhcp.leases":          "ignored",
	}))
	r := decode[importReport](t, run(t, "import", "-json", "-dry-run", "backup.tar.gz").want(0).out)[0]
	var left []string
	for _, l := range r.Left {
		left = append(left, l.String())
	}
	expect(t, "left out", strings.Join(left, "\n"), `backup.tar.gz/adlist.json:2: switched off: https://lists.example.net/b.txt
backup.tar.gz/blacklist.regex.json:2: regular expression: ^ads
backup.tar.gz/client.json: client: 192.0.2.5 tablet
backup.tar.gz/custom.list:1: rewrite: 192.0.2.10 nas.example
backup.tar.gz/group.json: group of clients: kids (its lists and names hold for all)
backup.tar.gz/setupVars.conf:4: upstream: REV_SERVER=true (for some domains only: see forward of CoreDNS)
backup.tar.gz/setupVars.conf:5: DHCP: DHCP_ACTIVE=true
backup.tar.gz/setupVars.conf:6: switched off: BLOCKING_ENABLED=false (here it blocks)`)
	testkit.WantParts(t, string(r.Files[0].Text), "block https://lists.example.net/a.txt\n", "forward . 127.0.0.1:5335 9.9.9.9\n")
	for i, want := range map[int][]string{1: {"bad.example\n", "||wild.example^\n"}, 2: {"|good.example^\n"}} {
		_, lines, _ := strings.Cut(string(r.Files[i].Text), "\n") // after the comment
		expect(t, r.Files[i].Path, slices.Sorted(strings.Lines(lines)), want)
	}
}

func TestWhatImportRefuses(t *testing.T) {
	testkit.Long(t)
	inImports(t)
	dir := t.TempDir()
	file := func(name, text string) string { return testkit.Write(t, dir, name, text) }
	for _, tt := range []struct{ args, want string }{
		{"", "takes the files of a configuration"},
		{file("none.txt", "hello"), "is no file that import knows"},
		{dir + "/nowhere", "no such file"},
		{"-from bind blocky.yml", "-from is pihole, adguardhome, blocky, rpz"},
		{"blocky.yml unbound.conf", "import them one by one"},
		{file("gravity.db", "SQLite format 3\x00"), "is a database"},
		{file("new.zip", "PK\x03\x04"), "group by d.id\" > domainlist.csv"},
		{"-from blocky " + file("a.yml", "a: ["), "a.yml: yaml: line 1"},
		{"-from blocky " + file("b.yml", "- a"), "this is no configuration"},
		{"-from pihole " + file("c.tar.gz", teleporter(t, map[string]string{"x": "y"})), "no table of Pi-hole in it"},
		{file("d.tar.gz", teleporter(t, map[string]string{"adlist.json": strings.Repeat(" ", maxImport)})), "it unpacks to more than 16.8 MB"},
		{file("e.csv", "id,address\n\"1"), "this is not what sqlite3 -csv prints"},
		{file("big.yml", "blocking:\n"+strings.Repeat("#", maxImport)), "has more than 16.8 MB"},
		{"-upstream nobody blocky.yml", "is no address of a resolver"},
		{"-from pihole " + file("f.txt", "hello"), "no file of Pi-hole"},
		{file("g.toml", "[dns]\n  upstreams = [\n    \"9.9.9.9"), "this is not what pihole-FTL writes: line 3"},
		{file("h.toml", "[dns]\nport = 53\n[dns"), "this is not what pihole-FTL writes: line 3"},
		{file("many.yml", "blocking:\n  denylists:\n    a:\n      - |\n"+strings.Repeat("        a.example\n", maxNames+1)), "import takes up to 100000"},
	} {
		run(t, append([]string{"import", "-dry-run"}, strings.Fields(tt.args)...)...).want(2, tt.want)
	}
}

// sqlite3 prints nothing for a table without rows, as of a Pi-hole without domains of its own.
func TestATableOfPiholeWithoutRowsIsRead(t *testing.T) {
	inImports(t)
	for _, from := range []string{"", "-from pihole "} {
		args := "import -dry-run " + from + "adlist.csv " + testkit.Write(t, t.TempDir(), "domainlist.csv", "")
		run(t, strings.Fields(args)...).want(0, "domainlist.csv: empty table", "block.txt (0 lines)").quiet()
	}
}

func TestUpstreamsOfOthers(t *testing.T) {
	for written, want := range map[string]string{
		"9.9.9.9":                            "9.9.9.9",
		"9.9.9.9:53":                         "9.9.9.9",
		"tcp+udp:9.9.9.9":                    "9.9.9.9",
		"udp://9.9.9.9":                      "9.9.9.9",
		"127.0.0.1#5335":                     "127.0.0.1:5335",
		"[2620:fe::fe]:5353":                 "[2620:fe::fe]:5353",
		"2620:fe::fe#5353":                   "[2620:fe::fe]:5353",
		"2620:fe::fe#53":                     "2620:fe::fe",
		"2620:fe::fe":                        "2620:fe::fe",
		"tls://dns.quad9.net":                "tls://9.9.9.9%dns.quad9.net tls://149.112.112.112%dns.quad9.net",
		"tls://8.8.8.8":                      "tls://8.8.8.8%dns.google",
		"tls://192.0.2.1":                    "tls://192.0.2.1",
		"tls://192.0.2.1:8853":               "", // forward wants a name before a port
		"tcp-tls:192.0.2.1:8853#dns.example": "tls://192.0.2.1%dns.example:8853",
		"tls://[2001:db8::1]:8853#dns.test":  "tls://[2001:db8::1%dns.test]:8853",
		"tls://[2001:db8::1]:853#dns.test":   "tls://2001:db8::1%dns.test",
		"https://dns.google/dns-query":       "tls://8.8.8.8%dns.google tls://8.8.4.4%dns.google",
		"h3://1.1.1.1/dns-query":             "tls://1.1.1.1%cloudflare-dns.com",
		"https://192.0.2.1/dns-query":        "",
		"quic://dns.example":                 "",
		"sdns://AgcAAAAAAAAABzEuMC4wLjE":     "",
		"[/lan/]192.0.2.1":                   "",
		"router.example":                     "",
		"tls://":                             "",
		"tcp-tls:192.0.2.1#a b{$HOME}":       "",
	} {
		all, why := forwardTo(written)
		expect(t, written, strings.Join(all, " "), want)
		if want == "" {
			expect(t, "there is a reason for "+written, why != "", true)
		}
	}
}

func TestTheSettingsOfPihole6AreRead(t *testing.T) {
	for text, want := range map[string]string{
		"[dns]\n  upstreams = [\n    \"127.0.0.1#5335\",\n    \"9.9.9.9\"\n  ] ### CHANGED, default = []\n  port = 53\n": "dns.upstreams 3:127.0.0.1#5335, dns.upstreams 4:9.9.9.9, dns.port 6:53",
		"# [dns]\n[dns]\nhosts = [   ]\n\n[dns.blocking] # a table\n\tactive = true # yes\r\n":                           "dns.blocking.active 6:true",
		"[a]\nx = [ \"a # b\", 'c \"d\"', \"e\\\"\\u00e4\" ]":                                                            "a.x 2:a # b, a.x 2:c \"d\", a.x 2:e\"ä",
		"x = [\n1,\n": "an error",
		"x\n=1":       "an error",
		"":            "",
	} {
		var all []string
		err := tomlValues([]byte(text), func(key string, line int, text string) { all = append(all, fmt.Sprintf("%s %d:%s", key, line, text)) })
		if err != nil {
			all = []string{"an error"}
		}
		expect(t, text, strings.Join(all, ", "), want)
	}
}

// A server block that is made asks nobody who asks it.
func TestAnImportDoesNotForwardToItself(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.yml", "upstreams:\n  groups:\n    default:\n      - 127.0.0.1:5353\n      - 127.0.0.1\nports:\n  dns: 5353\n")
	run(t, "import", "-dry-run", "a.yml").want(0, "forward . 127.0.0.1\n", "a.yml: upstream: 127.0.0.1:5353 (the server would ask itself)")
	write(t, "pihole.toml", "[dns]\nupstreams = [\"127.0.0.1#53\", \"9.9.9.9\"]\n")
	write(t, "domainlist.csv", "id,domain,type,enabled\n1,not a name,1,1\n2,-,1,1\n")
	run(t, "import", "-dry-run", "pihole.toml", "domainlist.csv").want(0, "forward . 9.9.9.9\n", "\npihole.toml: upstream: 127.0.0.1 (the server would ask itself)")
}

func TestAnImportListensForPlainDNS(t *testing.T) {
	for text, want := range map[string]string{
		"interface: 192.0.2.1\n interface: 192.0.2.1@853\n":               "0 [192.0.2.1]: x:3: encrypted DNS: 192.0.2.1@853",
		"interface: 0.0.0.0@443\n port: 5353\n interface: 192.0.2.1\n":    "5353 [192.0.2.1]: x:2: encrypted DNS: 0.0.0.0@443",
		"interface:192.0.2.1\n port:5353\n interface:192.0.2.1@853\n":     "5353 [192.0.2.1]: x:4: encrypted DNS: 192.0.2.1@853", // as unbound takes it, too
		"interface: 192.0.2.1@5353\n interface: 192.0.2.2@5354\n":         "5353 [192.0.2.1]: x:3: port: 5354",
		"interface: 127.0.0.1@5335\n interface: 192.0.2.1\n":              "53 [192.0.2.1]: x:2: port: 5335",
		"interface: 192.0.2.1\n interface: 127.0.0.1@53\n port: 5335\n":   "5335 [192.0.2.1]: x:3: port: 53",
		"interface: 192.0.2.1@5353\n interface: 192.0.2.1@5353\n port: 0": "5353 [192.0.2.1]: x:4: port: 0",
	} {
		m := &imported{file: "x"}
		testkit.Must(t, m.rpz([]byte("server:\n "+text)))
		m.unbound.whole()
		testkit.WantStart(t, fmt.Sprintf("%d %s: %s", m.port, m.bind, strings.Trim(fmt.Sprint(m.left), "[]")), want)
		expect(t, text, len(m.left), 1)
	}
}

func TestTheFilesOfUnboundAreOne(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.conf", "forward-zone:\n name: .\n forward-addr: 9.9.9.9@853#dns.quad9.net\nserver:\n interface: 192.0.2.1\n")
	write(t, "b.conf", "server:\n tls-upstream: yes\n local-zone: \"own.example\" always_nxdomain\n port: 5353\n")
	write(t, "c.conf", "server:\n local-zone: \"fine.own.example\" transparent\n interface: 192.0.2.2@53\n")
	write(t, "control.conf", "remote-control:\n control-enable: yes\n control-interface: /run/unbound.ctl\n") // as Debian has it
	write(t, "main.conf", "# Debian\ninclude-toplevel: \"/etc/unbound/unbound.conf.d/*.conf\"\n")
	write(t, "d.conf", "server:\n local-zone: set.own.example ipset\n local-zone: below.set.example transparent\n local-zone: set.example ipset\n")
	run(t, "import", "-dry-run", "main.conf", "control.conf", "a.conf", "b.conf", "c.conf", "d.conf").want(0,
		".:5353 {\n        bind 192.0.2.1\n", "forward . tls://9.9.9.9%dns.quad9.net\n", "||fine.own.example^\n", "    ||set.own.example^\n", "allow.txt (2 lines)",
		"main.conf:2: included file: /etc/unbound/unbound.conf.d/*.conf (import it, too)",
		"\nc.conf:2: exception: fine.own.example", "\nc.conf:3: port: 53 (it listens on port 5353 only)").quiet()
}

// What others wrote makes no other lines in the Corefile than lists, and lists that are read whole.
func FuzzImport(f *testing.F) {
	for _, tt := range importTests {
		for _, name := range strings.Fields(tt.files) {
			raw, err := os.ReadFile(filepath.Join("testdata", "import", name))
			testkit.Must(f, err)
			for i := range peers {
				f.Add(i, raw)
			}
		}
	}
	f.Add(0, []byte(teleporter(f, map[string]string{"adlist.json": `[{"address":"https://a.example/{$HOME}"}]`})))
	f.Add(1, []byte("filters:\n- {enabled: true, url: \"https://a.example/ } . {\"}\nuser_rules: [\"a.example\\n}\", \"@@||a.example^\", &x [*x]]"))
	f.Add(2, []byte("blocking:\n  denylists: &a\n    b: [*a, \"a\\tb\"]\n"))
	f.Fuzz(func(t *testing.T, peer int, raw []byte) {
		if peer < 0 || peer >= len(peers) {
			return
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "input")
		testkit.Need(t, os.WriteFile(path, raw, 0o600))
		m := &imported{}
		if err := m.read(peers[peer], []string{path}); err != nil {
			return
		}
		out := filepath.Join(dir, "out")
		all, err := m.files(out)
		testkit.Must(t, err)
		testkit.Need(t, writeNew(out, all))
		blocks, err := caddyfile.Parse("Corefile", strings.NewReader(string(all[0].Text)), nil)
		if err != nil || len(blocks) != 1 {
			t.Fatalf("%v, %d server blocks in\n%s", err, len(blocks), all[0].Text)
		}
		for directive := range blocks[0].Tokens {
			testkit.WantParts(t, " bind acl errors safebrowsing cache loop forward ", " "+directive+" ")
		}
		_, err = parseCorefile(all[0].Path)
		testkit.Must(t, err)
		for i, allow := range map[int]bool{1: false, 2: true} {
			sum, _, err := ownlist.Survey(strings.NewReader(string(all[i].Text)), ownlist.Config{Allow: allow})
			testkit.Must(t, err)
			if sum.Seems != "" || sum.Bad.Count+sum.NotSupported()+sum.Elsewhere.Count > 0 {
				t.Errorf("%v in\n%s", sum.Remarks(), all[i].Text)
			}
		}
		_, err = json.Marshal(m.left)
		testkit.Must(t, err)
	})
}
