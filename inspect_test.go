package safebrowsing

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
)

// A client connects to the end of a chain of aliases.
func TestOfManyTargetsTheLastSixteenAreInspected(t *testing.T) {
	m := new(dns.Msg)
	for i := range 40 {
		m.Answer = append(m.Answer, &dns.CNAME{Target: fmt.Sprintf("n%d.example.", i/2)})
	}
	if got := targetsOf(m); len(got) != maxTargets || got[0] != "n19.example." || got[15] != "n4.example." {
		t.Errorf("Expected the last 16 different targets, got %v", got)
	}
}
