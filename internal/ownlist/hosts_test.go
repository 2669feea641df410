package ownlist

import (
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestHostsOfTheCorefileAllowTheirTreeOrWhatIsBelow(t *testing.T) {
	now := time.Now()
	f := Hosts("Corefile", []HostEntry{
		{Host: lookup.FromQname("tree.example.")},
		{Host: lookup.FromQname("below.example."), Below: true},
		{Host: lookup.FromQname("ended.example."), Below: true, Until: now},
	})
	for name, want := range map[string]bool{
		"tree.example.": true, "a.tree.example.": true,
		"below.example.": false, "a.below.example.": true, "b.a.below.example.": true,
		"ended.example.": false, "a.ended.example.": false,
		"other.example.": false,
	} {
		if m, ok := f.Match(lookup.FromQname(name), now); ok != want || ok && !m.Allow {
			t.Errorf("%s: Expected %v, got %v %+v", name, want, ok, m)
		}
	}
}

func TestHostsOfTheCorefileMatchWithWhatIsBelow(t *testing.T) {
	var entries []HostEntry
	for _, text := range []string{"example.org", "www.example.com", "bücher.example", "192.0.2.1", "[2001:db8::1]", "lan"} {
		entries = append(entries, HostEntry{Host: host(t, text)})
	}
	f := Hosts("test", entries)
	for _, tt := range []struct {
		name, qname string
		want        bool
	}{
		{"a name of the list", "example.org.", true},
		{"in other letters", "EXAMPLE.org.", true},
		{"a child", "www.example.org.", true},
		{"a distant child", "a.b.c.d.e.f.g.h.example.org.", true},
		{"a name that only ends alike", "notexample.org.", false},
		{"a parent", "example.com.", false},
		{"a sibling", "mail.example.com.", false},
		{"a top-level name", "org.", false},
		{"an international name", "xn--bcher-kva.example.", true},
		{"a single label", "lan.", true},
		{"below a single label", "nas.lan.", true},
		{"an address", "192.0.2.1.", true},
		{"another spelling of it", "0xc0000201.", true},
		{"another address", "192.0.2.2.", false},
		{"a hidden label before a name of the list", `a\.b.example.org.`, true},
		{"a hidden label elsewhere", `a\.b.example.net.`, false},
		{"the root", ".", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, ok := f.Match(lookup.FromQname(tt.qname), time.Time{}); ok != tt.want {
				t.Errorf("matched: %v, want %v", ok, tt.want)
			}
		})
	}
	for _, text := range []string{"[2001:DB8:0::1]", "[::ffff:192.0.2.1]"} {
		if _, ok := f.Match(host(t, text), time.Time{}); !ok {
			t.Errorf("%s does not match", text)
		}
	}
}

func TestMatchingHostsOfTheCorefileDoesNotAllocate(t *testing.T) {
	f := Hosts("test", []HostEntry{{Host: host(t, "example.org")}})
	h := lookup.FromQname(strings.Repeat("a.", 60) + "example.com.")
	if got := testing.AllocsPerRun(100, func() { f.Match(h, time.Time{}) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
