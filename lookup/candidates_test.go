package lookup

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// A host in no list is safe if the server does not answer, and the decision says why.
func TestAHostInNoListIsSafeIfTheServerDoesNotAnswer(t *testing.T) {
	srv := &server{t: t}
	broken := errors.New("status 500")
	srv.always(Answer{}, broken)
	c := checkerOf(t, Config{Mode: NoStorage, Searcher: srv, PerSearch: 1}, "other.example/")
	if got, want := decide(t, c, "www.example.com."), (Decision{Verdict: Safe, By: ByError, Err: broken}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Limited says what Wait says if no search is admitted.
func TestLimitedCandidatesAreThoseOfWhichNoneIsAdmitted(t *testing.T) {
	tests := []struct {
		name    string
		lists   []List
		verdict Verdict
		list    string
	}{
		{"the host is in a list", []List{listOf("host", "www.example.com/")}, Unsure, "host"},
		{"its domain is", []List{listOf("domain", "example.com/")}, Unsure, "domain"},
		{"both are, in two lists", []List{listOf("domain", "example.com/"), listOf("host", "www.example.com/")}, Unsure, "host"},
		{"none is", []List{listOf("list", "other.example/")}, Safe, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			database := new(Database)
			database.Publish(tt.lists)
			c := checkerOf(t, Config{Mode: NoStorage, Database: database})
			candidates := suspect(t, c, "www.example.com.")
			want := Decision{Verdict: tt.verdict, By: ByLimiter, List: tt.list, Err: ErrLimited}
			if got := candidates.Limited(); got != want {
				t.Errorf("Limited: %+v, want %+v", got, want)
			}
			refuse := func() (func(), error) { return nil, ErrLimited }
			if got := c.Confirm(candidates, refuse).Wait(t.Context()); got != want {
				t.Errorf("Wait: %+v, want %+v", got, want)
			}
		})
	}
}

// If one search can ask about all candidates, the exact host comes first. Otherwise the
// domain does: its threat saves the other searches.
func TestTheFirstOfSeveralThreatsIsNamed(t *testing.T) {
	all := []string{"www.example.com/", "example.com/"}
	for perSearch, want := range map[int]string{0: all[0], 3: all[0], 2: all[0], 1: all[1]} {
		srv := &server{t: t}
		srv.knows(time.Hour, isThreat(all[0], Malware), isThreat(all[1], Malware))
		c := checkerOf(t, Config{Searcher: srv, PerSearch: perSearch}, all...)
		if got := decide(t, c, "www.example.com."); got.Verdict != Unsafe || got.Expression != want {
			t.Errorf("%d prefixes a search: %+v, want unsafe for %s", perSearch, got, want)
		}
	}
}

func TestFirstIsThatOfTheFirstCandidate(t *testing.T) {
	database := new(Database)
	database.Publish([]List{listOf("domain", "example.com/"), listOf("host", "www.example.com/")})
	for name, want := range map[string][2]string{
		"www.example.com.":  {"host", "www.example.com/"},
		"mail.example.com.": {"domain", "example.com/"},
	} {
		c := checkerOf(t, Config{Database: database})
		if list, expression := suspect(t, c, name).First(); list != want[0] || expression != want[1] {
			t.Errorf("%s: list %q, expression %q, want %q", name, list, expression, want)
		}
	}
}

// The versions of the protocol write an IPv6 address in different ways.
func TestAnIPv6AddressIsCheckedAsItsRuleWritesIt(t *testing.T) {
	h, ok := ParseHost("[64:ff9b::1.2.3.4]")
	if !ok {
		t.Fatal("not a host")
	}
	written := map[Rule]string{RuleV5: h.ExpressionsBy(RuleV5)[0], RuleV4: h.ExpressionsBy(RuleV4)[0]}
	if written[RuleV5] == written[RuleV4] {
		t.Fatalf("both are %s", written[RuleV4])
	}
	for rule, want := range written {
		c := checkerOf(t, Config{Rule: rule}, want)
		if _, candidates := c.Check(h); candidates == nil || !slices.Equal(expressionsOf(candidates), []string{want}) {
			t.Errorf("rule %d: candidates %q, want %q", rule, expressionsOf(candidates), want)
		}
	}
}

// A name and its subdomains have the prefix of the shortest listed expression in common.
func TestSubdomainsHaveTheShortestExpressionInCommon(t *testing.T) {
	c := checkerOf(t, Config{}, "example.com/", "a.example.com/", "b.a.example.com/")
	want := HashExpression("example.com/").Prefix(4)
	for _, name := range []string{"example.com.", "a.example.com.", "b.a.example.com.", "other.example.com."} {
		if got := suspect(t, c, name).Shortest(); got != want {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
}
