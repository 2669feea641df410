package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var importNames = flag.Int("import.names", 1_000, "names that TestAnImportDecidesAsTheProgramItself asks about; 10000: as in docs/migrate.md")

// policy is what an operator has configured, in no program's words.
type policy struct {
	listed                                   []string // in a published list: these names only
	block, blockTree, allow, allowTree, fine []string // own names; trees with all names below; fine are below blockTree
}

// newPolicy makes some of each kind. Some exceptions are for names of the list, and some names of the list and
// own names are below an exception.
func newPolicy() policy {
	var p policy
	for i := range 1500 {
		p.listed = append(p.listed, fmt.Sprintf("l%d.example", i))
	}
	for i := range 300 {
		p.block = append(p.block, fmt.Sprintf("b%d.example", i))
		p.blockTree = append(p.blockTree, fmt.Sprintf("t%d.example", i))
		p.fine = append(p.fine, fmt.Sprintf("fine.t%d.example", i))
		p.allowTree = append(p.allowTree, fmt.Sprintf("a%d.example", i))
	}
	for i := range 100 {
		p.allow = append(p.allow, p.listed[7*i])
		p.listed = append(p.listed, fmt.Sprintf("www.a%d.example", i))
		p.block = append(p.block, fmt.Sprintf("own.a%d.example", 100+i))
	}
	return p
}

// asked are n names about which the policy says something, and others, in an order of their own.
func (p policy) asked(n int) (all []string) {
	for _, names := range [][]string{p.listed, p.block, p.blockTree, p.allow, p.allowTree, p.fine} {
		for _, name := range names {
			all = append(all, name, "www."+name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for i := 0; len(all) < 10_000; i++ {
		all = append(all, fmt.Sprintf("n%d.other.example", i))
	}
	chance := rand.New(rand.NewPCG(29, 5))
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

func lines(format string, names ...[]string) string {
	var b strings.Builder
	for _, name := range slices.Concat(names...) {
		b.WriteString(strings.ReplaceAll(format, "{}", name))
	}
	return b.String()
}

// importPeer is a program with a policy in its own words.
type importPeer struct {
	row     string // of docs/migrate.md
	program string
	// configure writes the configuration into dir. It returns the file with which the program starts, and those that
	// import reads.
	configure func(t *testing.T, p policy, dir, port, upstream string) (file string, inputs []string)
	args      string // FILE is its configuration, in the folder DIR
}

var importPeers = []importPeer{
	{"Unbound with RPZ", "unbound", configureUnbound, "-d -c FILE"},
	{"dnsmasq with the rules of Pi-hole", "dnsmasq", configurePihole, "--no-daemon --conf-file=FILE"},
	{"AdGuard Home", "AdGuardHome", configureAdGuardHome, "-c FILE -w DIR --no-check-update --no-permcheck"},
	{"blocky", "blocky", configureBlocky, "--config FILE serve"},
}

const zoneHead = "$TTL 300\n@ SOA localhost. root.localhost. 1 3600 900 2592000 300\n@ NS localhost.\n"

// configureUnbound writes a zone of exceptions before one of own names and the published list.
func configureUnbound(t *testing.T, p policy, dir, port, upstream string) (string, []string) {
	exceptions := testkit.Write(t, dir, "exceptions.zone", zoneHead+lines("{} CNAME rpz-passthru.\n", p.allow, p.fine, p.allowTree)+lines("*.{} CNAME rpz-passthru.\n", p.allowTree))
	own := testkit.Write(t, dir, "own.zone", zoneHead+lines("{} CNAME .\n", p.block, p.blockTree)+lines("*.{} CNAME .\n", p.blockTree))
	list := testkit.Write(t, dir, "list.zone", zoneHead+lines("{} CNAME .\n", p.listed))
	text := "server:\n  interface: 127.0.0.1\n  port: " + port + "\n  username: \"\"\n  chroot: \"\"\n  pidfile: \"\"\n  use-syslog: no\n  do-not-query-localhost: no\n" +
		"  directory: \"" + dir + "\"\n  module-config: \"respip iterator\"\n"
	for _, zone := range []string{exceptions, own, list} {
		name := strings.TrimSuffix(filepath.Base(zone), ".zone")
		text += "rpz:\n  name: \"" + name + ".rpz\"\n  zonefile: \"" + filepath.Base(zone) + "\"\n"
	}
	file := testkit.Write(t, t.TempDir(), "unbound.conf", text+"forward-zone:\n  name: \".\"\n  forward-addr: "+strings.Replace(upstream, ":", "@", 1)+"\n")
	return file, []string{file}
}

// configurePihole writes the tables of Pi-hole, and for dnsmasq what they mean: an exception wins always. dnsmasq cannot allow one
// name below a domain without those below it, so there is none here.
func configurePihole(t *testing.T, p policy, dir, port, upstream string) (string, []string) {
	list := testkit.Write(t, dir, "list.txt", lines("0.0.0.0 {}\n", p.listed))
	row := func(kind string) string { return kind + ",{},1,0\n" }
	domains := testkit.Write(t, dir, "domainlist.csv", "type,domain,enabled,group_ids\n"+lines(row("0"), p.allow)+lines(row("1"), p.block)+
		escapedDots(lines(`2,(\.|^){}$,1,0`+"\n", p.allowTree))+escapedDots(lines(`3,(\.|^){}$,1,0`+"\n", p.blockTree)))
	adlists := testkit.Write(t, dir, "adlist.csv", "address,enabled,type,group_ids\n"+list+",1,0,0\n")
	settings := testkit.Write(t, dir, "pihole.toml", "[dns]\n  upstreams = [\n    \""+strings.Replace(upstream, ":", "#", 1)+"\"\n  ]\n")
	blocked := slices.DeleteFunc(slices.Concat(p.listed, p.block), func(name string) bool {
		return slices.Contains(p.allow, name) || below(name, p.allowTree)
	})
	hosts := testkit.Write(t, dir, "hosts", lines("0.0.0.0 {}\n", blocked))
	file := testkit.Write(t, dir, "dnsmasq.conf", "port="+port+"\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser=\ncache-size=0\n"+
		"addn-hosts="+hosts+"\nserver="+strings.Replace(upstream, ":", "#", 1)+"\n"+lines("address=/{}/\n", p.blockTree))
	return file, []string{settings, adlists, domains}
}

// configureAdGuardHome has the published list as a file, and all else as rules of the operator.
func configureAdGuardHome(t *testing.T, p policy, dir, port, upstream string) (string, []string) {
	list := testkit.Write(t, dir, "list.txt", lines("0.0.0.0 {}\n", p.listed))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "data/filters"), 0o700))
	testkit.Write(t, filepath.Join(dir, "data/filters"), "1.txt", lines("0.0.0.0 {}\n", p.listed)) // as it was fetched last
	file := testkit.Write(t, dir, "AdGuardHome.yaml", "schema_version: 34\nhttp:\n  address: 127.0.0.1:"+testkit.FreePort(t)+"\nusers: []\n"+
		"dns:\n  bind_hosts: [127.0.0.1]\n  port: "+port+"\n  upstream_dns: [\""+upstream+"\"]\n  bootstrap_dns: [\""+upstream+"\"]\n  ratelimit: 0\n  hostsfile_enabled: false\n  serve_plain_dns: true\n  cache_enabled: false\n"+
		"querylog:\n  enabled: false\nstatistics:\n  enabled: false\n"+
		"filters:\n  - enabled: true\n    url: "+list+"\n    name: list\n    id: 1\n"+
		"filtering:\n  filtering_enabled: true\n  protection_enabled: true\n  blocking_mode: nxdomain\n  filters_update_interval: 0\n  safe_fs_patterns: [\""+list+"\"]\n"+
		"user_rules:\n"+lines("  - '|{}^'\n", p.block)+lines("  - '||{}^'\n", p.blockTree)+lines("  - '@@|{}^'\n", p.allow)+lines("  - '@@||{}^'\n", p.allowTree, p.fine))
	return file, []string{file}
}

// configureBlocky has one group of lists, where an exception wins always.
func configureBlocky(t *testing.T, p policy, dir, port, upstream string) (string, []string) {
	list := testkit.Write(t, dir, "list.txt", lines("{}\n", p.listed))
	const line = "        {}\n"
	file := testkit.Write(t, dir, "config.yml", "upstreams:\n  init: {strategy: fast}\n  groups:\n    default: [\"tcp+udp:"+upstream+"\"]\n"+
		"blocking:\n  denylists:\n    all:\n      - "+list+"\n      - |\n"+lines(line, p.block)+lines("        *.{}\n", p.blockTree)+
		"  allowlists:\n    all:\n      - |\n"+lines(line, p.allow)+lines("        *.{}\n", p.allowTree, p.fine)+
		"  clientGroupsBlock:\n    default: [all]\n  blockType: nxDomain\n  loading: {refreshPeriod: 0s, strategy: blocking}\n"+
		"caching: {maxTime: -1s, cacheTimeNegative: -1s}\nqueryLog: {type: none}\nlog: {level: warn}\nports: {dns: \"127.0.0.1:"+port+"\"}\n")
	return file, []string{file}
}

func escapedDots(text string) string { return strings.ReplaceAll(text, ".example", `\.example`) }

// below reports whether a name is one of these domains, or below one.
func below(name string, domains []string) bool {
	return slices.ContainsFunc(domains, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
}

// blocks asks a program about a name, until it answers.
func blocks(t *testing.T, client *dns.Client, address, name string) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		r, _, err := client.Exchange(new(dns.Msg).SetQuestion(name+".", dns.TypeA), address)
		switch {
		case err == nil && r.Rcode == dns.RcodeNameError:
			return true
		case err == nil && r.Rcode == dns.RcodeSuccess && len(r.Answer) == 1:
			a, ok := r.Answer[0].(*dns.A)
			return ok && a.A.IsUnspecified()
		case time.Now().After(end):
			t.Fatalf("%s: Expected an answer, got %v, %v", name, r, err)
		}
		time.Sleep(50 * time.Millisecond) // it has just started
	}
}

// The server block that import makes decides about each name as the program does whose configuration it read, but for what
// docs/migrate.md explains: a name that a list or the operator blocks, below a domain that is allowed.
func TestAnImportDecidesAsTheProgramItself(t *testing.T) {
	testkit.Long(t)
	t.Setenv("SAFEBROWSING_API_KEY", "")
	for _, peer := range importPeers {
		t.Run(peer.row, func(t *testing.T) {
			if _, err := exec.LookPath(peer.program); err != nil && (peer.program == "AdGuardHome" || peer.program == "blocky") {
				t.Skipf("%v, and no package of Debian has it: put its release into PATH", err)
			}
			program, dir, port, p := testkit.Program(t, peer.program), t.TempDir(), testkit.FreePort(t), newPolicy()
			file, inputs := peer.configure(t, p, dir, port, answering(t, func(*dns.Msg) {}).String())
			args := strings.NewReplacer("FILE", file, "DIR", filepath.Dir(file)).Replace(peer.args)
			running := testkit.Start(t, program, strings.Fields(args)...)
			t.Cleanup(func() { t.Log(running.Output()) })
			made := filepath.Join(dir, "made")
			run(t, append([]string{"import", "-out", made}, inputs...)...).want(0).quiet()
			all := blocksOf(t, filepath.Join(made, "Corefile"))
			expect(t, "server blocks", len(all), 1)
			counts, client := make(map[string]int), &dns.Client{Timeout: 5 * time.Second}
			for _, name := range p.asked(*importNames) {
				theirs := blocks(t, client, "127.0.0.1:"+port, name)
				h, _ := lookup.ParseHost(name)
				ours := all[0].Explain(h, name+".").Verdict == lookup.Unsafe
				switch {
				case theirs && ours:
					counts["blocked"]++
				case !theirs && !ours:
					counts["passed"]++
				case ours && below(name, p.allowTree) && slices.Contains(slices.Concat(p.listed, p.block), name):
					counts["more specific"]++
				default:
					t.Errorf("%s: %s blocks it: %t, the server block that import made: %t", name, peer.row, theirs, ours)
				}
			}
			row := fmt.Sprintf("| %s | %d | %d | %d |", peer.row, counts["blocked"], counts["passed"], counts["more specific"])
			t.Log(row)
			testkit.Between(t, fmt.Sprint("names of each kind: ", counts), min(counts["blocked"], counts["passed"]), *importNames/20, *importNames)
			if *importNames == 10_000 {
				testkit.WantParts(t, read(t, "../../docs/migrate.md"), "\n"+row+"\n")
			}
		})
	}
}
