package policy

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

// The operator's allowed names come before test names, these before the operator's
// blocked names, and all of them before Safe Browsing.
func TestWhatDecidesFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(path, []byte("own.example\nallowed.example\ntest.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entry := func(name string) []ownlist.HostEntry {
		return []ownlist.HostEntry{{Host: lookup.FromQname(name)}}
	}
	b := &config.Block{
		Zones: []string{"example."}, Except: []string{"lan.example."},
		Own: []config.OwnFile{{Path: path}}, Hosts: entry("allowed.example."), Tests: ownlist.Hosts(config.TestList, entry("test.example.")),
	}
	p := New(b)
	if d, _ := p.Check(lookup.FromQname("own.example.")); d.Verdict != lookup.Safe {
		t.Errorf("Expected no list to be in force before Open, got %v", d)
	}
	if err := p.Open(); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, tc := range []struct {
		qname string
		by    lookup.Decider
		note  string // of the explanation
	}{
		{"own.example.", lookup.ByBlock, ""},
		{"allowed.example.", lookup.ByAllow, ""},
		{"test.example.", lookup.ByTest, ""},
		{"www.test.example.", lookup.ByTest, ""},
		{"clean.example.", lookup.ByNobody, "no lists are in force"},
		{"own.lan.example.", lookup.ByNobody, "not checked"},
		{"own.example.net.", lookup.ByNobody, "not checked"},
	} {
		h := lookup.FromQname(tc.qname)
		if in := tc.note != "not checked"; p.InScope(strings.ToUpper(tc.qname)) != in {
			t.Errorf("%s: Expected in scope %v", tc.qname, in)
		}
		e := p.Explain(h, tc.qname)
		blocks := tc.by == lookup.ByBlock || tc.by == lookup.ByTest
		if e.By != tc.by || (e.Verdict == lookup.Unsafe) != blocks || !strings.HasPrefix(e.Note, tc.note) || e.Suspected || (tc.note == "") != (e.Note == "") {
			t.Errorf("%s: Expected by %v, note %q, got %+v", tc.qname, tc.by, tc.note, e)
		}
	}
}
