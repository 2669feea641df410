package safebrowsing

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
)

func TestAtMostSixteenTargetsAreInspected(t *testing.T) {
	m := new(dns.Msg)
	for i := range 40 {
		m.Answer = append(m.Answer, &dns.CNAME{Target: fmt.Sprintf("n%d.example.", i/2)})
	}
	if got := targetsOf(m); len(got) != maxTargets || got[15] != "n15.example." {
		t.Errorf("Expected the first 16 different targets, got %v", got)
	}
}
