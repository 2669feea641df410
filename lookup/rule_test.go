package lookup

import (
	"fmt"
	"slices"
	"testing"
)

func TestCheckGoesByTheRule(t *testing.T) {
	const long = "1.2.3.4.5.6.7.8.9.a.b.c.example.com" // more than maxLabelsWithoutPSL
	tests := []struct {
		name   string
		qname  string
		listed []string
		v5, v4 []string // candidates
	}{
		{"a public suffix", "x.co.uk.", []string{"co.uk/"}, nil, []string{"co.uk/"}},
		{"a landlord", "u.github.io.", []string{"github.io/"}, nil, []string{"github.io/"}},
		{"a top-level domain never counts", "x.example.com.", []string{"com/"}, nil, nil},
		{"a registrable domain", "x.example.co.uk.", []string{"example.co.uk/"}, []string{"example.co.uk/"}, []string{"example.co.uk/"}},
		{"the exact host comes first, the shortest parent next", "www.example.com.", []string{"www.example.com/", "example.com/"},
			[]string{"www.example.com/", "example.com/"}, []string{"www.example.com/", "example.com/"}},
		{"six labels: the host", "a.b.c.d.e.com.", []string{"a.b.c.d.e.com/"}, []string{"a.b.c.d.e.com/"}, []string{"a.b.c.d.e.com/"}},
		{"six labels: five of them", "a.b.c.d.e.com.", []string{"b.c.d.e.com/"}, []string{"b.c.d.e.com/"}, []string{"b.c.d.e.com/"}},
		{"seven labels: six of them", "a.b.c.d.e.f.com.", []string{"b.c.d.e.f.com/"}, nil, nil},
		{"seven labels below co.uk: five of them", "a.b.c.d.e.co.uk.", []string{"c.d.e.co.uk/"}, []string{"c.d.e.co.uk/"}, []string{"c.d.e.co.uk/"}},
		{"seven labels below co.uk: six of them", "a.b.c.d.e.co.uk.", []string{"b.c.d.e.co.uk/"}, []string{"b.c.d.e.co.uk/"}, nil},
		{"seven labels below co.uk: two of them", "a.b.c.d.e.co.uk.", []string{"co.uk/"}, nil, []string{"co.uk/"}},
		{"many labels: the host", long + ".", []string{long + "/"}, []string{long + "/"}, []string{long + "/"}},
		{"many labels: two of them", long + ".", []string{"example.com/"}, []string{"example.com/"}, []string{"example.com/"}},
		{"many labels: five of them", long + ".", []string{"a.b.c.example.com/", "b.c.example.com/"},
			[]string{"b.c.example.com/", "a.b.c.example.com/"}, []string{"b.c.example.com/", "a.b.c.example.com/"}},
		{"many labels: six of them", long + ".", []string{"9.a.b.c.example.com/"}, nil, nil},
		{"many labels below co.uk", "1.2.3.4.5.6.7.8.9.a.co.uk.", []string{"co.uk/", "8.9.a.co.uk/", "7.8.9.a.co.uk/"},
			[]string{"8.9.a.co.uk/", "7.8.9.a.co.uk/"}, []string{"co.uk/", "8.9.a.co.uk/"}},
		{"an address", "192.0.2.1.", []string{"192.0.2.1/"}, []string{"192.0.2.1/"}, []string{"192.0.2.1/"}},
		{"an address has no parent", "192.0.2.1.", []string{"2.1/", "0.2.1/"}, nil, nil},
		{"a hidden label leaves the parents", `a\.b.co.uk.`, []string{"co.uk/"}, nil, []string{"co.uk/"}},
	}
	for _, tt := range tests {
		for word, want := range map[string][]string{"v5": tt.v5, "v4": tt.v4} {
			t.Run(tt.name+", "+word, func(t *testing.T) {
				_, candidates := checkerOf(t, Config{Rule: rules[word]}, tt.listed...).Check(FromQname(tt.qname))
				if got := expressionsOf(candidates); !slices.Equal(got, want) {
					t.Errorf("candidates are %q, want %q", got, want)
				}
			})
		}
	}
}

// TestLikelySafeHostsGoByTheRule tests the mode RealTime.
func TestLikelySafeHostsGoByTheRule(t *testing.T) {
	for rule, asked := range map[Rule]bool{RuleV5: true, RuleV4: false} {
		safe := listOf("safe", append(common(99), "co.uk/")...)
		safe.LikelySafe = true
		database := new(Database)
		database.Publish([]List{safe})
		c := checkerOf(t, Config{Database: database, Mode: RealTime, Rule: rule})
		if _, candidates := c.Check(FromQname("x.co.uk.")); (candidates != nil) != asked {
			t.Errorf("rule %d: the server is asked: %v, want %v", rule, candidates != nil, asked)
		}
	}
}

// common returns n expressions.
func common(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("common%d.example/", i))
	}
	return all
}

// Without the list of likely safe hosts every host would be asked about.
func TestRealTimeIsLocalUntilItKnowsLikelySafeHosts(t *testing.T) {
	listed := listOf("bad", "bad.example/")
	likelySafe := func(n int) List {
		l := listOf("safe", common(n)...)
		l.LikelySafe = true
		return l
	}
	many := listOf("long", common(500)...)
	for name, test := range map[string]struct {
		lists []List
		asks  bool // about a host that no list has
	}{
		"no list":                             {nil, false},
		"no list of likely safe hosts":        {[]List{listed}, false},
		"an empty one":                        {[]List{listed, likelySafe(0)}, false},
		"one that is short":                   {[]List{listed, likelySafe(99)}, false},
		"one that is short, and a long other": {[]List{listed, many, likelySafe(99)}, false},
		"one that is long enough":             {[]List{listed, likelySafe(100)}, true},
		"only that one":                       {[]List{likelySafe(100)}, true},
	} {
		database := new(Database)
		database.Publish(test.lists)
		for mode, asks := range map[Mode]bool{Local: false, RealTime: test.asks, NoStorage: true} {
			c := checkerOf(t, Config{Database: database, Mode: mode})
			if _, candidates := c.Check(FromQname("new.example.com.")); (candidates != nil) != asks {
				t.Errorf("mode %d, %s: the server is asked: %t, want %t", mode, name, candidates != nil, asks)
			}
			if _, candidates := c.Check(FromQname("bad.example.")); candidates == nil && len(test.lists) > 0 && test.lists[0].Name == "bad" {
				t.Errorf("mode %d, %s: a host in a list is not asked about", mode, name)
			}
		}
	}
}
