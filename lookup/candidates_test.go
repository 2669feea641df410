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
			c := checkerOf(t, Config{Mode: NoStorage, Database: databaseOf(tt.lists...)})
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

// The exact host comes first. A name and its subdomains have the prefix of the shortest listed expression in common.
func TestFirstAndShortestOfTheCandidates(t *testing.T) {
	c := checkerOf(t, Config{Database: databaseOf(listOf("domain", "example.com/"), listOf("host", "a.example.com/", "b.a.example.com/"))})
	shortest := HashExpression("example.com/").Prefix(4)
	for name, want := range map[string][2]string{
		"a.example.com.": {"host", "a.example.com/"}, "b.a.example.com.": {"host", "b.a.example.com/"},
		"example.com.": {"domain", "example.com/"}, "other.example.com.": {"domain", "example.com/"},
	} {
		candidates := suspect(t, c, name)
		if list, expression := candidates.First(); list != want[0] || expression != want[1] || candidates.Shortest() != shortest {
			t.Errorf("%s: list %q, expression %q, want %q; the shortest is %x", name, list, expression, want, candidates.Shortest())
		}
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
	tests := []struct {
		name  string
		lists []List
		first string // the list in the decision
		size  int    // bytes of the prefix that is sent with AsStored
	}{
		{"four bytes", []List{storedAs(t, "a", host, 4)}, "a", 4},
		{"five bytes", []List{storedAs(t, "a", host, 5)}, "a", 5},
		{"a whole hash", []List{storedAs(t, "a", host, 32)}, "a", 32},
		{"the shortest of a list", []List{storedAs(t, "a", host, 6, 8, 32)}, "a", 6},
		{"the shortest of two lists, in the first", []List{storedAs(t, "a", host, 5, 16), storedAs(t, "b", host, 8)}, "a", 5},
		{"the shortest of two lists, in the second", []List{storedAs(t, "a", host, 16), storedAs(t, "b", host, 7, 32)}, "a", 7},
		{"another list that does not match", []List{storedAs(t, "a", "example.net/", 4), storedAs(t, "b", host, 9)}, "b", 9},
		{"a list of likely safe ones does not count", []List{likelySafe, storedAs(t, "b", host, 10)}, "b", 10},
	}
	for _, tt := range tests {
		for _, asStored := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", as stored", false: ", in four bytes"}[asStored], func(t *testing.T) {
				srv := &server{t: t}
				srv.knows(time.Hour, isThreat(host, Malware))
				c := checkerOf(t, Config{Database: databaseOf(tt.lists...), Searcher: srv, AsStored: asStored})
				if got := decide(t, c, "example.com."); got.Verdict != Unsafe || got.List != tt.first {
					t.Errorf("%+v, want unsafe, of list %s", got, tt.first)
				}
				want := HashExpression(host).Prefix(4)
				if asStored {
					want = HashExpression(host).Prefix(tt.size)
				}
				if got := srv.searches(); len(got) != 1 || !slices.Equal(got[0], []Prefix{want}) {
					t.Errorf("asked for %x, want %x", got, want)
				}
			})
		}
	}
}

// TestHostsInNoListAreAskedInFourBytes tests the modes that ask about hosts that no list holds.
func TestHostsInNoListAreAskedInFourBytes(t *testing.T) {
	srv := &server{t: t}
	c := checkerOf(t, Config{Database: databaseOf(storedAs(t, "a", "example.com/", 8)), Searcher: srv, AsStored: true, Mode: NoStorage})
	decide(t, c, "www.example.com.")
	want := []Prefix{HashExpression("www.example.com/").Prefix(4), HashExpression("example.com/").Prefix(8)}
	if got := srv.searches(); len(got) != 1 || !slices.Equal(got[0], want) {
		t.Errorf("asked for %x, want %x", got, want)
	}
}

// inFrames marks a threat FRAME_ONLY.
func inFrames(t ThreatHash) ThreatHash {
	t.FrameOnly = true
	return t
}

func TestFrameOnlyThreatsBlockAndAreMarked(t *testing.T) {
	const name, parent = "www.example.com/", "example.com/"
	outcome := func(threat Threat, expression string, frameOnly bool) Decision {
		return Decision{Verdict: Unsafe, Threat: threat, Expression: expression, FrameOnly: frameOnly}
	}
	tests := []struct {
		name    string
		threats []ThreatHash
		want    Decision
	}{
		{"none", nil, Decision{}},
		{"not marked", []ThreatHash{isThreat(name, Malware)}, outcome(Malware, name, false)},
		{"marked", []ThreatHash{inFrames(isThreat(name, Malware))}, outcome(Malware, name, true)},
		{"marked, then not, in one full hash", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(name, SocialEngineering)},
			outcome(SocialEngineering, name, false)},
		{"not marked, then marked, in one full hash", []ThreatHash{isThreat(name, SocialEngineering), inFrames(isThreat(name, Malware))},
			outcome(SocialEngineering, name, false)},
		{"a domain that is marked, of a name that is not", []ThreatHash{isThreat(name, Malware), inFrames(isThreat(parent, Malware))},
			outcome(Malware, name, false)},
		{"a name that is marked, in a domain that is not", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(parent, Malware)},
			outcome(Malware, name, true)},
		{"a threat that nobody wants to be protected from", []ThreatHash{isThreat(name, UnwantedSoftware), inFrames(isThreat(name, Malware))},
			outcome(Malware, name, true)},
		{"a marked threat that nobody wants to be protected from", []ThreatHash{inFrames(isThreat(name, UnwantedSoftware))}, Decision{}},
	}
	for _, tt := range tests {
		srv := &server{t: t}
		srv.knows(time.Hour, tt.threats...)
		c := checkerOf(t, Config{Searcher: srv, Threats: Threats(0).With(Malware).With(SocialEngineering)}, name, parent)
		for _, by := range []Decider{ByServer, ByCache} {
			got, want := decide(t, c, "www.example.com."), tt.want
			if want.By = by; want.Verdict == Unsafe {
				want.List, want.Expires = "list", got.Expires
			}
			if got != want {
				t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
			}
		}
	}
}

// Version 4 and Web Risk name each threat of a full hash in an entry of its own, version 5 all in one.
func TestADecisionNamesAllThreatsOfItsExpression(t *testing.T) {
	const name = "www.example.com/"
	lasting := func(h ThreatHash, ttl time.Duration) ThreatHash {
		h.TTL = ttl
		return h
	}
	both := isThreat(name, Malware)
	both.Threats = both.Threats.With(SocialEngineering)
	for _, tc := range []struct {
		name    string
		threats []ThreatHash
		want    []Threat
		lasts   time.Duration
	}{
		{"one", []ThreatHash{lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
		{"two in one entry", []ThreatHash{lasting(both, time.Minute)}, []Threat{Malware, SocialEngineering}, time.Minute},
		{"two in two entries, until the first ends", []ThreatHash{lasting(isThreat(name, SocialEngineering), time.Minute), lasting(isThreat(name, Malware), time.Second)}, []Threat{Malware, SocialEngineering}, time.Second},
		{"one that is marked FRAME_ONLY, besides another", []ThreatHash{inFrames(isThreat(name, Malware)), lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
		{"one that is not asked for, besides another", []ThreatHash{isThreat(name, UnwantedSoftware), lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			srv := &server{t: t}
			srv.knows(time.Hour, tc.threats...)
			c := checkerOf(t, Config{Searcher: srv, Threats: Threats(0).With(Malware).With(SocialEngineering)}, name)
			for _, by := range []Decider{ByServer, ByCache} {
				d := decide(t, c, "www.example.com.")
				if d.By != by || !slices.Equal(d.Threats(), tc.want) || time.Until(d.Expires) != tc.lasts {
					t.Errorf("Expected %v for %v by %v, got %v for %v in %+v", tc.want, tc.lasts, by, d.Threats(), time.Until(d.Expires), d)
				}
			}
		})
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
		t.Run(test.name, func(t *testing.T) {
			d := &Database{MaxFiltered: test.maxFiltered}
			if d.PublishApart(test.lists) {
				t.Error("lists were replaced, but there were none")
			}
			checkHeld(t, d, len(test.lists) > 0)
			if joined := d.Join(); joined != test.joined {
				t.Errorf("joined: %t, want %t", joined, test.joined)
			}
			checkHeld(t, d, len(test.lists) > 0)
			if replaced := d.PublishApart(lists()); replaced != (len(test.lists) > 0) {
				t.Errorf("replaced: %t", replaced)
			}
		})
	}
}

// checkHeld asks a database with three unsafe hosts, or without a list, about these and others.
func checkHeld(t *testing.T, d *Database, lists bool) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		want := lists && name < "d"
		if got := d.snapshot().holdsAny([]FullHash{HashExpression(name + ".example/")}); got != want {
			t.Errorf("%s.example: got %t, want %t", name, got, want)
		}
	}
}
