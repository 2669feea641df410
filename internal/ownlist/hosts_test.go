package ownlist

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestHostsOfTheCorefileAllowTheirTreeOrWhatIsBelowUntilTheyEnd(t *testing.T) {
	entries := []HostEntry{{Host: host(t, "below.example"), Below: true}, {Host: host(t, "ended.example"), Until: then}, {}} // the last is no host
	for _, text := range []string{"example.org", "www.example.com", "bücher.example", "192.0.2.1", "[2001:db8::1]", "lan"} {
		entries = append(entries, HostEntry{Host: host(t, text)})
	}
	f := Hosts("test", entries)
	if _, ok := f.Match(host(t, "a.ended.example"), then.Add(-1)); !ok || f.State().Entries != 8 {
		t.Errorf("before its end it is not allowed, or there are %d entries", f.State().Entries)
	}
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
		{"what is below only", "below.example.", false},
		{"a child of what is below only", "b.a.below.example.", true},
		{"one that has ended", "a.ended.example.", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if m, ok := f.Match(lookup.FromQname(tt.qname), then); ok != tt.want || ok && !m.Allow {
				t.Errorf("matched: %v, want %v", ok, tt.want)
			}
		})
	}
	for _, text := range []string{"[2001:DB8:0::1]", "[::ffff:192.0.2.1]"} {
		if _, ok := f.Match(host(t, text), then); !ok {
			t.Errorf("%s does not match", text)
		}
	}
}
