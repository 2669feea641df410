package block

import (
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The operator's words win.
func TestWhatIsKeptByTheStanza(t *testing.T) {
	const ddr, canary = "_dns.resolver.arpa.", "use-application-dns.net."
	for name, tc := range map[string]struct {
		block       config.Block
		ddr, canary bool
	}{
		"no word":              {config.Block{}, true, false},
		"keep_clients":         {config.Block{Keep: config.KeepCanaries}, true, true},
		"keep_clients off":     {config.Block{Keep: config.KeepNothing}, false, false},
		"monitor":              {config.Block{Keep: config.KeepCanaries, Monitor: true}, true, false},
		"except":               {config.Block{Keep: config.KeepCanaries, Except: []string{"arpa.", "net."}}, false, false},
		"another zone":         {config.Block{Keep: config.KeepCanaries, Zones: []string{"example.org."}}, false, false},
		"allow the zone":       {config.Block{Keep: config.KeepCanaries, Hosts: hosts(t, "resolver.arpa")}, false, true},
		"allow the canary":     {config.Block{Keep: config.KeepCanaries, Hosts: hosts(t, "use-application-dns.net")}, true, false},
		"allow something else": {config.Block{Keep: config.KeepCanaries, Hosts: hosts(t, "example.net")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.block.Zones == nil {
				tc.block.Zones = []string{"."}
			}
			b := New(config.Config{Block: tc.block})
			if err := b.ReadOwn(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.End)
			for qname, want := range map[string]bool{ddr: tc.ddr, canary: tc.canary, strings.ToUpper(canary): tc.canary, "www.example.net.": false} {
				if k := b.Kept(SignOf(qname), qname); (k != nil) != want {
					t.Errorf("%s: Expected to be kept: %v, got %+v", qname, want, k)
				}
			}
			verdict := map[bool]string{true: status.VerdictBlocked, false: status.VerdictPasses}[tc.canary]
			if a := b.Why(lookup.FromQname(canary)); a.Verdict != verdict && a.Verdict != status.VerdictUnknown || (a.List == "keep_clients") != tc.canary {
				t.Errorf("Expected %s of a canary, got %+v", verdict, a)
			}
			if a := b.Why(lookup.FromQname(ddr)); a.Verdict == status.VerdictBlocked || strings.Contains(a.Note, "not forwarded") != tc.ddr {
				t.Errorf("Expected that resolver.arpa is answered here: %v, got %+v", tc.ddr, a)
			}
		})
	}
}

func hosts(t *testing.T, names ...string) (all []ownlist.HostEntry) {
	t.Helper()
	for _, name := range names {
		h, ok := lookup.ParseHost(name)
		if !ok {
			t.Fatal(name)
		}
		all = append(all, ownlist.HostEntry{Host: h})
	}
	return all
}

func TestTheLogSaysWhichNamesAreKept(t *testing.T) {
	for _, tc := range []struct {
		block config.Block
		want  string
	}{
		{config.Block{}, "Clients are kept here in part: resolver.arpa is not forwarded. keep_clients answers these here, too: use-application-dns.net, mask.icloud.com, mask-h2.icloud.com, dns-tunnel-check.googlezip.net"},
		{config.Block{Keep: config.KeepCanaries}, "Clients are kept here: resolver.arpa is not forwarded; and there are no use-application-dns.net, "},
		{config.Block{Keep: config.KeepCanaries, Monitor: true}, "monitor lets pass use-application-dns.net, "},
		{config.Block{Keep: config.KeepNothing}, "keep_clients off: resolver.arpa is forwarded, and "},
	} {
		b := New(config.Config{Block: tc.block})
		if got := b.Keeps(); !strings.Contains(got, tc.want) || b.standing().Led != (tc.block.Keep == config.KeepNothing) {
			t.Errorf("Expected %q, got %q; status says that clients are led away: %t", tc.want, got, b.standing().Led)
		}
	}
}
