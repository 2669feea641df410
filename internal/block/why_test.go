package block

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
