package block

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestMain(m *testing.M) {
	clog.Discard()
	m.Run()
}

// The operator's allowed names come before the operator's blocked names, and both before Safe
// Browsing.
func TestWhatDecidesFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(path, []byte("own.example\nallowed.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := func(name string) []ownlist.HostEntry {
		return []ownlist.HostEntry{{Host: lookup.FromQname(name)}}
	}
	b := &config.Block{
		Zones: []string{"example."}, Except: []string{"lan.example."},
		Own: []config.OwnFile{{Path: path}}, Hosts: entry("allowed.example."),
	}
	p := New(config.Config{Block: *b})
	if d := p.Check(lookup.FromQname("own.example.")); d.Verdict != lookup.Safe {
		t.Errorf("Expected no list to be in force before Open, got %v", d)
	}
	if err := p.open(true); err != nil {
		t.Fatal(err)
	}
	defer p.End()
	for _, tc := range []struct {
		qname string
		by    lookup.Decider
		note  string // of the explanation
	}{
		{"own.example.", lookup.ByBlock, ""},
		{"allowed.example.", lookup.ByAllow, ""},
		{"clean.example.", lookup.ByNobody, "only your own lists are in force"},
		{"own.lan.example.", lookup.ByNobody, "not checked"},
		{"own.example.net.", lookup.ByNobody, "not checked"},
	} {
		h := lookup.FromQname(tc.qname)
		if in := tc.note != "not checked"; p.InScope(strings.ToUpper(tc.qname)) != in {
			t.Errorf("%s: Expected in scope %v", tc.qname, in)
		}
		e := p.Explain(h, tc.qname)
		blocks := tc.by == lookup.ByBlock
		if e.By != tc.by || (e.Verdict == lookup.Unsafe) != blocks || !strings.HasPrefix(e.Note, tc.note) || e.Suspected || (tc.note == "") != (e.Note == "") {
			t.Errorf("%s: Expected by %v, note %q, got %+v", tc.qname, tc.by, tc.note, e)
		}
	}
}
