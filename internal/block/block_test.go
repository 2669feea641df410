package block

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestMain(m *testing.M) {
	clog.Discard()
	m.Run()
}

// The operator's allowed names come before the operator's blocked names, and both before Safe
// Browsing.
func TestWhatDecidesFirst(t *testing.T) {
	path := testkit.Write(t, t.TempDir(), "own.txt", "own.example\nallowed.example\n")
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
	testkit.Must(t, p.open(true))
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

func TestServerBlocksThatNeedTwoEnginesForOneServerOrFolderAreRefused(t *testing.T) {
	keyed := func(key, db string, cache int) config.Engine { return config.Engine{APIKey: key, DB: db, Cache: cache} }
	asking := func(key, endpoints string) config.Engine { return config.Engine{APIKey: key, Endpoint: endpoints} }
	for _, tc := range []struct {
		name         string
		first, again config.Engine
		want         string
	}{
		{"equal settings", keyed("A", "/db", 0), keyed("A", "/db", 0), ""},
		{"another key in another folder", keyed("A", "/db", 0), keyed("B", "/other", 0), ""},
		{"another key without folders", keyed("A", "", 0), keyed("B", "", 0), ""},
		{"another key in the same folder", keyed("A", "/db", 0), keyed("B", "/db", 0), "own db"},
		{"the same key in another folder", keyed("A", "/db", 0), keyed("A", "/other", 0), "with the same key"},
		{"the same key with another cache", keyed("A", "", 0), keyed("A", "", 7), "with the same key"},
		{"equal endpoints", asking("", "http://a http://b"), asking("", "http://a http://b"), ""},
		{"other endpoints", asking("", "http://a http://b"), asking("", "http://c http://d"), ""},
		{"another order with another key", asking("K", "http://a http://b"), asking("L", "http://b http://a"), ""},
		{"fewer endpoints", asking("", "http://a http://b"), asking("", "http://b"), "asks http://b with the same key and other endpoints"},
		{"more endpoints", asking("", "http://b"), asking("", "http://a http://b"), "asks http://b with"},
		{"another order", asking("", "http://a http://b"), asking("", "http://b http://a"), "in the same order"},
		{"own lists only", config.Engine{}, config.Engine{}, ""},
	} {
		block := func(e config.Engine) *Block {
			return New(config.Config{Online: tc.name != "own lists only", Secret: e.APIKey, Engine: e})
		}
		var c Claims
		testkit.Must(t, c.Add(block(tc.first)))
		if err := c.Add(block(tc.again)); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Expected %q, got %v", tc.name, tc.want, err)
		}
	}
}

// "Decided by list" would sound like a match.
func TestANameOnNoListIsNotDecidedByAList(t *testing.T) {
	b, h := New(config.Config{Online: true}), lookup.FromQname("example.org.")
	got := b.answerOf(h, Explained{Decision: lookup.Decision{By: lookup.ByList}, Note: "no threat list has it"})
	if got.Verdict != status.VerdictPasses || got.DecidedBy != "" || got.Note != "no threat list has it" {
		t.Errorf("%+v", got)
	}
	got = b.answerOf(h, Explained{Decision: lookup.Decision{Verdict: lookup.Unsure, By: lookup.ByList, List: "se-4b"}})
	if got.Verdict != status.VerdictSuspected || got.DecidedBy != "list" || got.List != "se-4b" {
		t.Errorf("%+v", got)
	}
}

func TestWhyDoesNotDenyWhatIsForgotten(t *testing.T) {
	before := process
	process = &Process{devices: newDevices()}
	t.Cleanup(func() { process = before })
	b, h := New(config.Config{Online: true, Block: config.Block{Zones: []string{"."}}}), lookup.FromQname("example.org.")
	const doubt = "this may be one of them"
	if got := b.Why(h); strings.Contains(got.Note, doubt) {
		t.Errorf("Expected no doubt before anything was blocked, got %+v", got)
	}
	block := func(from, to int) {
		for i := from; i < to; i++ {
			process.recent.Blocked(status.Blocked{List: "se-4b", Name: fmt.Sprintf("%d.example", i), Zones: b.zones()}, time.Now())
		}
	}
	block(0, 10_000)
	if got := b.Why(h); strings.Contains(got.Note, doubt) {
		t.Errorf("Expected no doubt about a name that was not blocked, got %+v", got)
	}
	if got := b.Why(lookup.FromQname("7.example.")); got.Verdict != status.VerdictUnknown || !strings.Contains(got.Note, "it was blocked at 20") || !strings.HasSuffix(got.Note, "than are kept") {
		t.Errorf("Expected to be told when a name was blocked that is not kept, got %+v", got)
	}
	block(10_000, 270_000)
	if got := b.Why(h); !strings.HasSuffix(got.Note, doubt) {
		t.Errorf("Expected a word about names that are forgotten, got %+v", got)
	}
}
