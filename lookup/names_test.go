package lookup

import (
	"strings"
	"testing"
)

// hostsOf parses hosts as a person writes them.
func hostsOf(t *testing.T, texts ...string) []Host {
	t.Helper()
	var hosts []Host
	for _, text := range texts {
		h, ok := ParseHost(text)
		if !ok {
			t.Fatalf("%q is no host", text)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func TestNamesContainHostsAndCoverWhatIsBelow(t *testing.T) {
	names := NewNames(hostsOf(t, "example.org", "www.example.com", "bücher.example", "192.0.2.1", "[2001:db8::1]", "lan"))
	tests := []struct {
		name, qname       string
		contained, within bool
	}{
		{"a name of the set", "example.org.", true, true},
		{"in other letters", "EXAMPLE.org.", true, true},
		{"a child", "www.example.org.", false, true},
		{"a distant child", "a.b.c.d.e.f.g.h.example.org.", false, true},
		{"a name that only ends alike", "notexample.org.", false, false},
		{"a parent", "example.com.", false, false},
		{"a sibling", "mail.example.com.", false, false},
		{"a top-level name", "org.", false, false},
		{"an international name", "xn--bcher-kva.example.", true, true},
		{"a single label", "lan.", true, true},
		{"below a single label", "nas.lan.", false, true},
		{"an address", "192.0.2.1.", true, true},
		{"another spelling of it", "0xc0000201.", true, true},
		{"another address", "192.0.2.2.", false, false},
		{"a hidden label before a name of the set", `a\.b.example.org.`, false, true},
		{"a hidden label elsewhere", `a\.b.example.net.`, false, false},
		{"the root", ".", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := FromQname(tt.qname)
			if got := names.Contains(h); got != tt.contained {
				t.Errorf("contained: %v, want %v", got, tt.contained)
			}
			if got := names.Covers(h); got != tt.within {
				t.Errorf("covered: %v, want %v", got, tt.within)
			}
		})
	}
	for _, h := range hostsOf(t, "[2001:DB8:0::1]", "[::ffff:192.0.2.1]") {
		if !names.Contains(h) || !names.Covers(h) {
			t.Errorf("%s is not found", h)
		}
	}
}

func TestAddressesHaveNoParents(t *testing.T) {
	names := NewNames([]Host{{name: "2.1"}, {name: "1"}})
	if h := FromQname("192.0.2.1."); names.Covers(h) || names.Contains(h) {
		t.Errorf("%s is covered by a name that it ends with", h)
	}
}

func TestZeroNamesAreEmpty(t *testing.T) {
	for _, names := range []Names{{}, NewNames(nil)} {
		if h := FromQname("example.org."); names.Len() != 0 || names.Contains(h) || names.Covers(h) {
			t.Errorf("empty names of length %d hold %s", names.Len(), h)
		}
	}
}

func TestDuplicateNamesCountOnce(t *testing.T) {
	names := NewNames(hostsOf(t, "b.example", "a.example", "B.example.", "a.example", "0x7f.1", "127.0.0.1"))
	if names.Len() != 3 {
		t.Errorf("Len = %d, want 3", names.Len())
	}
}

func TestLookingNamesUpDoesNotAllocate(t *testing.T) {
	names := NewNames(hostsOf(t, "example.org"))
	h := FromQname(strings.Repeat("a.", 60) + "example.com.")
	if got := testing.AllocsPerRun(100, func() { names.Covers(h); names.Contains(h) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
