package lookup

import (
	"strings"
	"testing"
)

// A Host may be compared: the same name makes the same Host on the quick way and on the others.
func TestAHostIsTheSameHoweverItWasMade(t *testing.T) {
	for _, tld := range []string{"example", "1e", "x1", "c", "de"} {
		for n := range 80 {
			name := "www." + strings.Repeat("a", n) + "b." + tld
			quick := FromQname(name + ".")
			parsed, ok := ParseHost(name)
			if !ok {
				t.Fatalf("%q is not a host", name)
			}
			all := map[string]Host{
				"upper case": FromQname(strings.ToUpper(name)), "escaped": FromQname(`\` + name), "parsed": parsed,
			}
			for way, h := range all {
				if h != quick {
					t.Errorf("%s: %+v, want %+v", way, h, quick)
				}
			}
			if quick.ip() || quick.truncated() || quick.String() != name {
				t.Errorf("%q: %+v", name, quick)
			}
		}
	}
}

func TestAddressesHaveNoDots(t *testing.T) {
	for _, text := range []string{"1.2.3.4", "0x7f.1", "[::1]", "[::ffff:1.2.3.4]", "[2001:db8::1.2.3.4]"} {
		h, ok := ParseHost(text)
		if !ok || !h.ip() || h.dots() != 0 || h.by(RuleV4).dots() != 0 {
			t.Errorf("%s: %+v, %t", text, h, ok)
		}
	}
}
