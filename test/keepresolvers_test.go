package test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// TestWhatResolversInFrontSayOfNamesByWhichClientsLeave asks the resolvers of docs/network.md, with the
// lines that are there, before and after keep_clients. It makes the rows of the table in
// test/README.md: where one differs, the failure has the row to put in its place.
func TestWhatResolversInFrontSayOfNamesByWhichClientsLeave(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	servers := map[string]*world{}
	for _, word := range []string{"keep_clients off", "keep_clients"} {
		w := newWorld(t)
		w.upstream = leadingUpstream(t)
		w.start(w.corefile(word))
		w.updated(1)
		servers[word] = w
	}
	for _, f := range forwarders {
		if f.row != "" || f.notInDebian {
			continue
		}
		t.Run(f.heading, func(t *testing.T) {
			program := findForwarder(t, f)
			wantRow(t, f.heading, func(t *testing.T, word string) string {
				host, port, err := net.SplitHostPort(servers[word].address("udp"))
				testkit.Must(t, err)
				return runForwarder(t, f, program, strings.ReplaceAll(documentedConfig(t, f.heading), "192.0.2.53", host+f.at+port))
			})
		})
	}
}

// TestWhatSystemdResolvedSaysOfNamesByWhichClientsLeave makes the row of systemd-resolved, see
// TestSystemdResolvedInFront.
func TestWhatSystemdResolvedSaysOfNamesByWhichClientsLeave(t *testing.T) {
	testkit.Long(t)
	program := resolvedInOwnNetwork(t)
	if program == "" {
		return
	}
	wantRow(t, "systemd-resolved", func(t *testing.T, word string) string {
		w := newWorld(t)
		w.host, w.upstream = "192.0.2.53", leadingUpstream(t)
		w.start(strings.Replace(w.corefile(word), ".:0 {", ".:53 {", 1))
		w.updated(1)
		startForwarder(t, program)
		return "127.0.0.53:53"
	})
}

// wantRow asks a resolver for the names by which clients leave, before and after keep_clients, and
// wants the answers in the table. start starts it in front of a CoreDNS that has the word.
func wantRow(t *testing.T, heading string, start func(t *testing.T, word string) (address string)) {
	t.Helper()
	cells := []string{"", heading}
	for _, word := range []string{"keep_clients off", "keep_clients"} {
		t.Run(word, func(t *testing.T) {
			at := start(t, word)
			var canaries []string
			for _, k := range answer.KeptNames[1:] {
				canaries = append(canaries, outcomeOf(askForwarder(t, at, k.Name, dns.TypeA)))
			}
			cells = append(cells, outcomeOf(askForwarder(t, at, designation, dns.TypeSVCB)), strings.Join(slices.Compact(canaries), ", "))
		})
	}
	if row := strings.TrimSpace(strings.Join(append(cells, ""), " | ")); !strings.Contains(documents(t)["test/README.md"], "\n"+row+"\n") {
		t.Errorf("Expected this row in test/README.md:\n%s", row)
	}
}
