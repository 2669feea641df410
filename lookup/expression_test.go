package lookup

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPrivateNamesAreNotPublic(t *testing.T) {
	tests := []struct {
		host   string
		public bool
	}{
		{"example.com", true},
		{"com", false},
		{"localhost", false},
		{"a.localhost", false},
		{"nas.local", false},
		{"a.b.local", false},
		{"a.internal", false},
		{"a.onion", false},
		{"a.invalid", false},
		{"a.test", false},
		{"a.alt", false},
		{"a.mylocal", true},
		{"local.example", true},
		{"test.example", true},
		{"a.example", true},
		{"1.0.0.127.in-addr.arpa", false},
		{"in-addr.arpa", false},
		{"1.ip6.arpa", false},
		{"ip6.arpa", false},
		{"nas.home.arpa", false},
		{"home.arpa", false},
		{"xhome.arpa", true},
		{"a.uri.arpa", true},
		{"127.1", false},
		{"[::1]", false},
		{"10.0.0.1", false},
		{"192.168.1.1", false},
		{"[fd00::1]", false},
		{"169.254.169.254", false},
		{"8.8.8.8", true},
		{"[2001:4860:4860::8888]", true},
		{"fritz.box", false},
		{"nas.fritz.box", false},
		{"xfritz.box", true},
		{"shop.box", true},
		{"a.net", true},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			h, ok := ParseHost(tt.host)
			if !ok {
				t.Fatal("no host")
			}
			if got := h.Public(); got != tt.public {
				t.Errorf("public: %v, want %v", got, tt.public)
			}
		})
	}
}

// someSuffixes are public suffixes of one to five labels, and wildcards.
var someSuffixes = []string{
	"com", "org", "de", "nosuchsuffix", "co.uk", "com.au", "github.io", "blogspot.com", "appspot.com",
	"s3.amazonaws.com", "us-west-1.compute.amazonaws.com", "eu-central-1.compute.amazonaws.com", "compute-1.amazonaws.com",
	"s3.dualstack.eu-west-1.amazonaws.com", "cn-north-1.eb.amazonaws.com.cn", "x.ck", "kawasaki.jp", "city.kawasaki.jp",
	"k12.ma.us", "pvt.k12.ma.us", "local", "home.arpa",
}

// randomName returns a DNS name of one of the suffixes and up to eight labels before
// it. Sometimes one label cannot be part of a URL and hides the labels to its left.
func randomName(r *rand.Rand) string {
	name := someSuffixes[r.IntN(len(someSuffixes))] + "."
	for range r.IntN(9) {
		label := string("abc"[r.IntN(3)])
		switch r.IntN(16) {
		case 0:
			label = `a\.b`
		case 1:
			label = `a%23`
		case 2:
			label = "A"
		}
		name = label + "." + name
	}
	return name
}

func TestQuickStartsAreASupersetOfTheExpressions(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		h := FromQname(randomName(random))
		for name, rule := range rules {
			quick := h.suffixStarts(nil, rule)
			if most := max(maxLabelsWithoutPSL-1, maxExpressions); len(quick) > most {
				t.Fatalf("%s: %q has %d quick starts, want at most %d", name, h, len(quick), most)
			}
			for _, start := range h.starts(rule) {
				if !slices.Contains(quick, start) {
					t.Fatalf("%s: quick starts %v of %+v lack %d", name, quick, h, start)
				}
			}
		}
	}
}

// TestCandidatesAreTheListedExpressions compares Check with the rule in its plainest
// form. The lists hold every kind of suffix, including those that are not expressions.
func TestCandidatesAreTheListedExpressions(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	listed := map[Prefix]bool{}
	var lists [2][]string
	for range 400 {
		name := FromQname(randomName(random)).String()
		for range random.IntN(8) {
			if _, parent, ok := strings.Cut(name, "."); ok {
				name = parent
			}
		}
		lists[random.IntN(2)] = append(lists[random.IntN(2)], name+"/")
	}
	for i := range lists {
		for _, expression := range lists[i] {
			listed[HashExpression(expression).Prefix(4)] = true
		}
	}
	database := new(Database)
	database.Publish([]List{listOf("a", lists[0]...), listOf("b", lists[1]...)})
	for word, rule := range rules {
		t.Run(word, func(t *testing.T) { compareCandidates(t, random, database, rule, listed) })
	}
}

// compareCandidates compares Check of random names with the expressions whose
// prefixes are listed.
func compareCandidates(t *testing.T, random *rand.Rand, database *Database, rule Rule, listed map[Prefix]bool) {
	c := checkerOf(t, Config{Database: database, Rule: rule})
	suspected := 0
	for range 20_000 {
		qname := randomName(random)
		h := FromQname(qname)
		var want []string
		for _, expression := range h.ExpressionsBy(rule) {
			if h.Public() && listed[HashExpression(expression).Prefix(4)] {
				want = append(want, expression)
			}
		}
		decision, candidates := c.Check(h)
		if got := expressionsOf(candidates); !slices.Equal(got, want) {
			t.Fatalf("%s: candidates are %q, want %q", qname, got, want)
		}
		if wantVerdict := map[bool]Verdict{true: Unsure, false: Safe}[want != nil]; decision.Verdict != wantVerdict {
			t.Fatalf("%s: verdict is %v, want %v", qname, decision.Verdict, wantVerdict)
		}
		if want != nil {
			suspected++
		}
	}
	if suspected < 2_000 || suspected > 18_000 {
		t.Errorf("%d of 20,000 names were suspected: the comparison says little", suspected)
	}
}

func TestCleanNamesDoNotAllocate(t *testing.T) {
	database := new(Database)
	var lists []List
	for _, name := range []string{"a", "b", "c", "d"} {
		lists = append(lists, listOf(name, name+".example/", "www."+name+".example/"))
	}
	database.Publish(lists)
	c := checkerOf(t, Config{Database: database})
	for _, qname := range []string{
		"com.", "example.com.", "www.example.com.", "a.b.example.co.uk.", "a.b.c.example.com.", "a.b.c.d.example.com.",
		"x.us-west-1.compute.amazonaws.com.", "nas.local.", `a\.b.example.com.`, "1.2.3.4.",
		strings.Repeat(strings.Repeat("a", 49)+".", 5) + "com.",
	} {
		h := FromQname(qname)
		if got := testing.AllocsPerRun(200, func() { c.Check(h) }); got != 0 {
			t.Errorf("%s: %v allocations, want 0", qname, got)
		}
	}
}
