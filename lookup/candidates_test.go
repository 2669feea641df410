package lookup

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Limited says what Wait says if no search is admitted.
func TestLimitedCandidatesAreThoseOfWhichNoneIsAdmitted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lists   []List
		verdict Verdict
		list    string
	}{
		{"the host is in a list", []List{listOf("host", "www.example.com/")}, Unsure, "host"},
		{"its domain is", []List{listOf("domain", "example.com/")}, Unsure, "domain"},
		{"both are, in two lists", []List{listOf("domain", "example.com/"), listOf("host", "www.example.com/")}, Unsure, "host"},
		{"none is", []List{listOf("list", "other.example/")}, Safe, ""},
	} {
		c := checkerOf(t, Config{Mode: NoStorage, Database: databaseOf(tt.lists...)})
		candidates := suspect(t, c, "www.example.com.")
		refuse := func() (func(), error) { return nil, ErrLimited }
		got := []Decision{candidates.Limited(), c.Confirm(candidates, refuse).Wait(t.Context())}
		want := Decision{Verdict: tt.verdict, By: ByLimiter, List: tt.list, Err: ErrLimited}
		testkit.Equal(t, tt.name, got, []Decision{want, want})
	}
}

// The exact host comes first. A name and its subdomains have the prefix of the shortest listed expression in common.
func TestFirstAndShortestOfTheCandidates(t *testing.T) {
	c := checkerOf(t, Config{Database: databaseOf(listOf("domain", "example.com/"), listOf("host", "a.example.com/", "b.a.example.com/"))})
	shortest := HashExpression("example.com/").Prefix(4)
	for name, want := range map[string][2]string{
		"a.example.com.": {"host", "a.example.com/"}, "b.a.example.com.": {"host", "b.a.example.com/"},
		"example.com.": {"domain", "example.com/"}, "other.example.com.": {"domain", "example.com/"},
	} {
		candidates := suspect(t, c, name)
		list, expression := candidates.First()
		testkit.Equal(t, name, []any{list, expression, candidates.Shortest()}, []any{want[0], want[1], shortest})
	}
}

// storedAs returns a list of prefixes of the hash of an expression, of the widths.
func storedAs(t testing.TB, name, expression string, widths ...int) List {
	t.Helper()
	hash := HashExpression(expression)
	var entries [][]byte
	for _, width := range widths {
		entries = append(entries, hash[:width])
	}
	return List{Name: name, Set: setOf(entries)}
}

func TestPrefixesAreAskedAsTheyAreStored(t *testing.T) {
	const host = "example.com/"
	likelySafe := storedAs(t, "safe", host, 4)
	likelySafe.LikelySafe = true
	for _, tt := range []struct {
		name  string
		lists []List
		first string // the list in the decision; "": none, in a mode that asks about every host
		size  int    // bytes of the prefix that is sent with AsStored
	}{
		{"in no list", []List{storedAs(t, "a", "example.net/", 8)}, "", 4},
		{"four bytes", []List{storedAs(t, "a", host, 4)}, "a", 4},
		{"five bytes", []List{storedAs(t, "a", host, 5)}, "a", 5},
		{"a whole hash", []List{storedAs(t, "a", host, 32)}, "a", 32},
		{"the shortest of a list", []List{storedAs(t, "a", host, 6, 8, 32)}, "a", 6},
		{"the shortest of two lists, in the first", []List{storedAs(t, "a", host, 5, 16), storedAs(t, "b", host, 8)}, "a", 5},
		{"the shortest of two lists, in the second", []List{storedAs(t, "a", host, 16), storedAs(t, "b", host, 7, 32)}, "a", 7},
		{"another list that does not match", []List{storedAs(t, "a", "example.net/", 4), storedAs(t, "b", host, 9)}, "b", 9},
		{"a list of likely safe ones does not count", []List{likelySafe, storedAs(t, "b", host, 10)}, "b", 10},
	} {
		for asStored, size := range map[bool]int{false: 4, true: tt.size} {
			srv := &server{t: t}
			srv.knows(time.Hour, isThreat(host, Malware))
			mode := map[bool]Mode{true: NoStorage, false: Local}[tt.first == ""]
			c := checkerOf(t, Config{Database: databaseOf(tt.lists...), Searcher: srv, AsStored: asStored, Mode: mode})
			got := decide(t, c, "example.com.")
			testkit.Equal(t, tt.name+": verdict and list", []any{got.Verdict, got.List}, []any{Unsafe, tt.first})
			want := [][]Prefix{{HashExpression(host).Prefix(size)}}
			testkit.Equal(t, fmt.Sprint(tt.name, ", as stored ", asStored, ": asked about"), srv.searches(), want)
		}
	}
}

func TestMoreThanMaxFilteredPrefixesAreJoined(t *testing.T) {
	lists := func() []List {
		return []List{listOf("a", "a.example/", "b.example/"), listOf("b", "b.example/", "c.example/"),
			{Name: "safe", Set: listOf("safe", "d.example/").Set, LikelySafe: true}}
	}
	for _, test := range []struct {
		name        string
		maxFiltered int
		lists       []List
		joined      bool
	}{
		{"none has a filter", -1, lists(), true},
		{"by default", 0, lists(), false},
		{"one more than have a filter", 3, lists(), true},
		{"as many as have a filter", 4, lists(), false},
		{"no list", -1, nil, false},
	} {
		d := &Database{MaxFiltered: test.maxFiltered}
		held := func() (all string) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				if d.snapshot().holdsAny([]FullHash{HashExpression(name + ".example/")}) {
					all += name
				}
			}
			return all
		}
		some := len(test.lists) > 0
		want := map[bool]string{true: "abc"}[some]
		testkit.Equal(t, test.name+": replaced, held", []any{d.PublishApart(test.lists), held()}, []any{false, want})
		testkit.Equal(t, test.name+": joined, held", []any{d.Join(), held()}, []any{test.joined, want})
		testkit.Equal(t, test.name+": replaced again", d.PublishApart(lists()), some)
	}
}

// Version 4 and Web Risk name each threat of a full hash in an entry of its own, version 5 all in one.
func TestWhichThreatsBlockAndHowTheyAreTold(t *testing.T) {
	const name, parent, half = "www.example.com/", "example.com/", 30 * time.Minute
	const se, mw, uws, pha = SocialEngineering, Malware, UnwantedSoftware, PotentiallyHarmfulApplication
	type hashes = []ThreatHash
	type threats = []Threat
	is := isThreat
	framed := func(expression string, threat Threat) ThreatHash {
		h := is(expression, threat)
		h.FrameOnly, h.TTL = true, time.Second
		return h
	}
	both := Threats(0).With(Malware).With(SocialEngineering)
	for _, tt := range []struct {
		name      string
		count     Threats // zero: all
		listed    []ThreatHash
		want      []Threat
		frameOnly bool
		lasts     time.Duration
	}{
		{"no full hash", both, nil, nil, false, 0},
		{"another full hash with the prefix", 0, hashes{{Hash: neighbour(HashExpression(name), 31), Threats: AllThreats}}, nil, false, 0},
		{"a full hash without a threat", 0, hashes{is(name)}, nil, false, 0},
		{"all count by default", 0, hashes{is(name, pha)}, threats{pha}, false, half},
		{"one that does not count", both, hashes{is(name, uws)}, nil, false, 0},
		{"one of two in one entry counts", both, hashes{is(name, uws, se)}, threats{se}, false, half},
		{"one of two in two entries counts", both, hashes{lasting(1, is(name, uws)), is(name, mw)}, threats{mw}, false, half},
		{"two in one entry", both, hashes{is(name, se, mw)}, threats{mw, se}, false, half},
		{"two entries, until the first ends", both, hashes{is(name, se), lasting(9, is(name, mw))}, threats{mw, se}, false, 9},
		{"marked FRAME_ONLY", both, hashes{framed(name, mw)}, threats{mw}, true, time.Second},
		{"marked, then not", both, hashes{framed(name, mw), is(name, se)}, threats{se}, false, half},
		{"not marked, then marked", both, hashes{is(name, se), framed(name, mw)}, threats{se}, false, half},
		{"a domain that is marked, of a name that is not", both, hashes{is(name, mw), framed(parent, mw)}, threats{mw}, false, half},
		{"a name that is marked, in a domain that is not", both, hashes{framed(name, mw), is(parent, mw)}, threats{mw}, true, time.Second},
		{"marked, besides one that does not count", both, hashes{is(name, uws), framed(name, mw)}, threats{mw}, true, time.Second},
		{"marked, and does not count", both, hashes{framed(name, uws)}, nil, false, 0},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			srv := &server{t: t}
			srv.knows(time.Hour, tt.listed...)
			c := checkerOf(t, Config{Searcher: srv, Threats: tt.count}, name, parent)
			for _, by := range []Decider{ByServer, ByCache} {
				got, want := decide(t, c, "www.example.com."), Decision{By: by}
				if tt.want != nil {
					want = Decision{Verdict: Unsafe, By: by, Threat: tt.want[0], List: "list", Expression: name}
					want.FrameOnly, want.Expires = tt.frameOnly, time.Now().Add(tt.lasts)
				}
				if want.Also = got.Also; got != want || !slices.Equal(got.Threats(), tt.want) {
					t.Errorf("got %+v, want %+v for %v", got, want, tt.want)
				}
			}
		})
	}
}
