package block

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
