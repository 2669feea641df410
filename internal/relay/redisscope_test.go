package relay

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// Relays share answers if their searches ask for the same threats, in whatever order the lists are.
func TestRelaysWithOtherListsShareNoAnswersOfTypedSearches(t *testing.T) {
	scope := func(d *protocol.Dialect, lists string) string {
		return searchScope(engine.Settings{Protocol: d.Name, Lists: lists})
	}
	if scope(protocol.DialectV5, "se-4b") != "" || scope(protocol.DialectV5, "mw-4b") != "" {
		t.Error("Expected one scope in version 5, whose search has no types")
	}
	if got := scope(protocol.DialectWebRisk, "mw-4b"); got == "" || got == scope(protocol.DialectWebRisk, "se-4b mw-4b") {
		t.Errorf("Expected another scope for other threats, got %q", got)
	}
	if scope(protocol.DialectWebRisk, "mw-4b se-4b") != scope(protocol.DialectWebRisk, "se-4b mw-4b") {
		t.Error("Expected one scope for the same lists")
	}
}
