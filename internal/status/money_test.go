package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSearchesCostMoney(t *testing.T) {
	s := Service{Title: "Web Risk", Spent: 12, Budget: 200, Left: 188, Paid: true}
	if got, want := s.Cost(), "Today 12 searches, 0.60 US-$ of at most 10.00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if s.Paid = false; s.Cost() != "" {
		t.Errorf("a service that is free: %q", s.Cost())
	}
	for n, want := range map[int]string{0: "0.00", 1: "0.05", 20: "1.00", 1_000_000_000: "50000000.00"} {
		if got := Dollars(n); got != want {
			t.Errorf("%d searches: %s, want %s", n, got, want)
		}
	}
}

func TestTheThreeNamesThatCostMostAreCounted(t *testing.T) {
	var c Costs
	now := time.Now()
	for i := range 2 * maxCostly {
		c.Searched(fmt.Sprintf("n%d.example", i), 1, now)
		if i%4 == 0 {
			c.Searched("most.example", 2, now)
			c.Searched("more.example", 1, now)
		}
	}
	if got := c.Most(now, 3); len(got) != 3 || got[0].Name != "most.example" || got[1].Name != "more.example" || got[0].Dollars() != Dollars(maxCostly) {
		t.Errorf("%+v", got)
	}
	if len(c.searches) > maxCostly {
		t.Errorf("%d names are kept", len(c.searches))
	}
	if got := c.Most(now.AddDate(0, 0, 1), 3); len(got) != 0 {
		t.Errorf("on the next day %+v", got)
	}
}

func TestAReportSaysThatAShareIsSpent(t *testing.T) {
	r := Report{At: time.Now(), Services: []Service{{Title: "Web Risk", InPart: "1 client has spent its share."}}, Blocks: []Block{{Zones: "."}}}
	if r.Judge(); r.State != InPart || !slices.Contains(r.Causes, Cause{Text: r.Services[0].InPart}) || !strings.Contains(r.Headline, "in part") {
		t.Errorf("%+v", r)
	}
}
