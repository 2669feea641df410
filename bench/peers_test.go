package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestEachPeerHasAListInItsFormat(t *testing.T) {
	want := map[string]string{
		ours: "listed-a.example\n", "blocky": "listed-a.example\n", "dnsdist": "listed-a.example\n",
		"adguardhome": "0.0.0.0 listed-a.example\n",
		"unbound":     "$TTL 300\n@ SOA localhost. root.localhost. 1 3600 900 2592000 300\n@ NS localhost.\nlisted-a.example CNAME .\n",
	}
	for _, p := range peers() {
		file := filepath.Join(t.TempDir(), "list")
		before, after, _ := strings.Cut(p.entry, "%s")
		if err := writeLines(file, p.header, []string{"a.example"}, before+listedFirst, after); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want[p.name] {
			t.Errorf("%s: got %q, %v, want %q", p.name, got, err, want[p.name])
		}
	}
}

// The zone is one that a name server reads.
func TestTheZoneOfUnboundIsAZone(t *testing.T) {
	for _, p := range peers() {
		if p.name != "unbound" {
			continue
		}
		z := dns.NewZoneParser(strings.NewReader(p.header+strings.Replace(p.entry, "%s", "a.example", 1)+"\n"), "rpz.bench.", "")
		var last dns.RR
		for rr, ok := z.Next(); ok; rr, ok = z.Next() {
			last = rr
		}
		if c, ok := last.(*dns.CNAME); z.Err() != nil || !ok || c.Target != "." || c.Hdr.Name != "a.example.rpz.bench." {
			t.Errorf("got %v, %v", last, z.Err())
		}
	}
}

func TestConfigurationsOfPeersAreFilled(t *testing.T) {
	at := place{dir: "/d", config: "/d/c", list: "/l", port: 5301, web: 5302, upstream: 5303}
	for _, p := range peers() {
		var both []string
		for _, at.cached = range []bool{false, true} {
			text := p.fill(p.config, at)
			for _, a := range p.args {
				text += " " + p.fill(a, at)
			}
			if left := regexp.MustCompile(`\b(CONFIG|DIR|LIST|PORT|WEB|UPSTREAM|CACHE)\b`).FindString(text); left != "" {
				t.Errorf("%s: %s is left in\n%s", p.name, left, text)
			}
			for _, want := range []string{"/d/c", "/l", "5301", "5303"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: no %s in\n%s", p.name, want, text)
				}
			}
			both = append(both, text)
		}
		if both[0] == both[1] {
			t.Errorf("%s: the cache changes nothing", p.name)
		}
	}
}

func TestPeersAreGivenByNameAndPath(t *testing.T) {
	o, err := parse([]string{"-only", "peers", "-peer", "blocky=/opt/blocky", "-peer", "unbound=/x=y"})
	if err != nil || o.peerPaths["blocky"] != "/opt/blocky" || o.peerPaths["unbound"] != "/x=y" {
		t.Errorf("got %v, %v", o.peerPaths, err)
	}
	for _, bad := range []string{"", "blocky", "blocky=", "bind=/x", ours + "=/x"} {
		if _, err := parse([]string{"-peer", bad}); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
	b := &bench{options: o, coredns: "/built/coredns"}
	for name, want := range map[string]string{ours: "/built/coredns", "blocky": "/opt/blocky"} {
		if got := b.peerProgram(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if got := b.peerProgram("dnsdist"); got != "" {
		t.Errorf("a program that is not there: got %q", got)
	}
}

func TestPeersAreHeldAgainstOurs(t *testing.T) {
	var out bytes.Buffer
	printPeers(&out, nil)
	if out.Len() != 0 {
		t.Errorf("no peers: got %q", out.String())
	}
	printPeers(&out, []peerResult{
		{"ours", sample{20}, sample{10}, 50, 0.5},
		{"theirs", sample{60}, sample{25}, 490.04, 1.554},
	})
	want := "| theirs | 60.00 | 16667 | × 3.000 | 25.00 | 40000 | × 2.500 | 490.0 | 1.55 |\n\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
