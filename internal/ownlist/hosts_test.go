package ownlist

import (
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
