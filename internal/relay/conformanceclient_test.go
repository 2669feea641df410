package relay

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// ourClient is our own client of a subject, with the lists that it holds.
type ourClient struct {
	*protocol.V5
	held map[string]updater.List
	how  map[string]string // of each list: "full", "partial" or "unchanged"
}

func newOurClient(t *testing.T, s *subject) *ourClient {
	t.Helper()
	v5, err := protocol.NewV5(protocol.Config{Endpoint: s.url, Key: conformanceKey, UserAgent: "conformance/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v5.Close)
	return &ourClient{v5, make(map[string]updater.List), make(map[string]string)}
}

// update fetches lists and applies the updates, as the updater does.
func (c *ourClient) update(t *testing.T, names ...string) {
	t.Helper()
	var wanted []updater.Want
	for _, name := range names {
		wanted = append(wanted, updater.Want{List: name, Version: c.held[name].Version})
	}
	_, err := c.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		old := updater.List{Name: names[i]}
		c.how[names[i]] = "full"
		if u.Partial {
			old, c.how[names[i]] = c.held[names[i]], "partial"
		}
		list, changed, err := updater.Apply(old, u, updater.DefaultMaxEntries)
		if err != nil {
			t.Fatalf("list %s: %v", names[i], err)
		}
		if u.Partial && !changed {
			c.how[names[i]] = "unchanged"
		}
		c.held[names[i]] = list
	})
	if err != nil {
		t.Fatal(err)
	}
}

// verdicts are those about hosts after the change.
var verdicts = map[string]lookup.Verdict{
	"evil.example": lookup.Unsafe, "www.evil.example": lookup.Unsafe, "both.example": lookup.Unsafe, "m7.example": lookup.Unsafe,
	"unconfirmed.example": lookup.Safe, "canary.example": lookup.Safe, "gone.example": lookup.Safe, "clean.example": lookup.Safe,
}

// results describes the lists of the client and its verdicts, a line each.
func (c *ourClient) results(t *testing.T) (lines []string) {
	t.Helper()
	database := new(lookup.Database)
	var lists []lookup.List
	for _, name := range slices.Sorted(maps.Keys(c.held)) {
		l := c.held[name]
		lists = append(lists, lookup.List{Name: name, Version: l.Version, Set: l.Set})
		lines = append(lines, fmt.Sprintf("%s: %s, %d entries, %x", name, c.how[name], l.Set.Len(), l.Checksum[:4]))
		if want := sha256.Sum256([]byte(strings.Join(contentsAfter[name], ""))); l.Checksum != want {
			t.Errorf("list %s has the checksum %x, want %x", name, l.Checksum, want)
		}
	}
	database.Publish(lists)
	checker, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: c.V5})
	if err != nil {
		t.Fatal(err)
	}
	defer checker.Close()
	for _, host := range slices.Sorted(maps.Keys(verdicts)) {
		d, candidates := checker.Check(lookup.FromQname(host + "."))
		if candidates != nil {
			d = checker.Confirm(candidates, nil).Wait(t.Context())
		}
		if d.Verdict != verdicts[host] {
			t.Errorf("%s: %+v, want %v", host, d, verdicts[host])
		}
		lines = append(lines, fmt.Sprintf("%s: %v by %v %v %s, frames only: %t, error: %v", host, d.Verdict, d.By, d.Threat, d.List, d.FrameOnly, d.Err))
	}
	return lines
}

// Our own client gets the same lists and comes to the same verdicts from a relay as from
// Google's server, from its first fetch and after a change of the lists.
func TestOurClientGetsTheSameFromARelay(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	lists := slices.Sorted(maps.Keys(contentsAfter))
	var all [][]string
	for _, s := range []*subject{judging(t, lenient{}), relayed(t)} {
		s.note(t)
		old, fresh := newOurClient(t, s), newOurClient(t, s)
		old.update(t, lists...)
		s.change(t)
		old.update(t, lists...)
		old.update(t, "mw-8b") // by itself
		fresh.update(t, lists...)
		all = append(all, slices.Concat(old.results(t), fresh.results(t)))
	}
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "judging server\trelay")
	for i, direct := range all[0] {
		fmt.Fprintf(out, "%s\t%s\n", direct, all[1][i])
		if direct != all[1][i] {
			t.Errorf("judging server: %s; relay: %s", direct, all[1][i])
		}
	}
	_ = out.Flush()
	t.Logf("\n%s", table.String())
}
