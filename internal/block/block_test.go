package block

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestMain(m *testing.M) {
	clog.Discard()
	m.Run()
}

// alone gives a test a process of its own.
func alone(t testing.TB, blocks ...*Block) *Process {
	before := process
	process = &Process{devices: newDevices(), blocks: blocks}
	t.Cleanup(func() { process = before })
	return process
}

// opened returns a server block, for all zones unless the stanza says others, whose own lists are open until the test ends.
func opened(t testing.TB, db string, c config.Block) *Block {
	t.Helper()
	if c.Zones == nil {
		c.Zones = []string{"."}
	}
	b := New(config.Config{Block: c, Engine: config.Engine{DB: db}})
	testkit.Must(t, b.open(true))
	t.Cleanup(b.End)
	return b
}

// prefixesOf returns the prefixes of hosts.
func prefixesOf(names ...string) (all []byte) {
	for _, name := range names {
		all = append(all, lookup.HashExpression(name+"/").Prefix(4)...)
	}
	return all
}

func TestListingsTellWhatIsKnownHere(t *testing.T) {
	own := testkit.Write(t, t.TempDir(), "list.txt", "own.example\n")
	b := listing(t, config.Block{Except: []string{"lan.example."}, Own: []config.OwnFile{{Path: own}}}, "evil.example", "sb.example.net")
	b.Need(neededNames)
	testkit.Must(t, b.ReadOwn())
	l, err := b.Listings(t.Context(), Question{
		Prefixes: prefixesOf("clean.example", "evil.example"),
		Hosts:    []string{"own.example", "own.lan.example", "clean.example", "sb.example.net"},
	})
	testkit.Must(t, err)
	testkit.Equal(t, "listed", l.Listed, []Listed{{Prefix: hex.EncodeToString(prefixesOf("evil.example")), Lists: []string{"mw-4b"}, Ask: 1}})
	testkit.Equal(t, "own", l.Own, []OwnSay{{"own.example", own, false}, {"sb.example.net", neededList, true}})
	got := []any{l.Zones, l.PerSearch, l.Left, l.Protocol}
	testkit.Equal(t, "zones, prefixes of a search, what is left, protocol", got, []any{".", lookup.MaxPrefixes, -1, "v5"})
}

// wantConfirmed confirms the prefixes of hosts, in this many searches. The first ones are threats.
func wantConfirmed(t *testing.T, b *Block, searches int, threats []string, others ...string) {
	t.Helper()
	c, err := b.Confirm(t.Context(), Question{Prefixes: prefixesOf(append(threats, others...)...)})
	testkit.Must(t, err)
	got := []any{c.Error, c.Searches, len(c.Answers)}
	testkit.Equal(t, "error, searches, answers", got, []any{"", searches, len(threats) + len(others)})
	for i, a := range c.Answers[:min(len(threats), len(c.Answers))] {
		hash := lookup.HashExpression(threats[i] + "/")
		testkit.Equal(t, threats[i], a.Threats, []string{hex.EncodeToString(hash[:])})
		testkit.Between(t, threats[i]+": TTL", a.TTL, 1, 30*time.Minute)
	}
}

func TestConfirmAnswersAboutEachPrefixAndAsksOnce(t *testing.T) {
	b := listing(t, config.Block{}, "evil.example", "harmless.example")
	for searches := 1; searches >= 0; searches-- { // then the answers are cached
		wantConfirmed(t, b, searches, []string{"evil.example"}, "harmless.example", "clean.example")
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	b, nostorage := listing(t, config.Block{}), listing(t, config.Block{})
	nostorage.Settings.Mode = lookup.NoStorage
	_, err := b.Confirm(t.Context(), Question{Prefixes: make([]byte, 4*241)})
	testkit.WantError(t, err, "241 prefixes at once, at most 240")
	for _, tc := range []struct {
		block *Block
		q     Question
		want  string
	}{
		{b, Question{Prefixes: []byte("abcde")}, "prefixes have 4 bytes each"},
		{b, Question{Prefixes: make([]byte, 4*(MaxPrefixes+1))}, "4097 prefixes at once, at most 4096"},
		{b, Question{Hosts: make([]string, MaxHosts+1)}, "257 hosts at once, at most 256"},
		{nostorage, Question{}, "mode nostorage keeps no lists"},
		{New(config.Config{}), Question{}, "no server block uses"},
	} {
		_, err := tc.block.Listings(t.Context(), tc.q)
		testkit.WantError(t, err, tc.want)
	}
}

// searchFunc is a server.
type searchFunc func(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error)

func (f searchFunc) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	return f(ctx, prefixes)
}

func TestOneProgramAtATimeHasPrefixesConfirmed(t *testing.T) {
	b, begun := New(config.Config{}), make(chan struct{})
	b.Use(engine.ServiceForTests(checkerOf(t, searchFunc(func(ctx context.Context, _ []lookup.Prefix) (lookup.Answer, error) {
		close(begun)
		<-ctx.Done()
		return lookup.Answer{}, ctx.Err()
	}), "evil.example")))
	p := &Process{blocks: []*Block{b}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Confirmed, 1)
	go func() {
		c, _ := p.Confirm(ctx, Question{Prefixes: prefixesOf("evil.example")})
		ended <- c
	}()
	<-begun
	_, err := p.Confirm(t.Context(), Question{})
	testkit.WantError(t, err, "another program")
	cancel()
	c := <-ended
	testkit.Equal(t, "the first one: an error, answers, searches", []any{c.Error != "", len(c.Answers), c.Searches}, []any{true, 0, 1})
	_, err = p.Confirm(t.Context(), Question{})
	testkit.Must(t, err)
}

// A query would be answered with the threat that is known; who counts waits for all.
func TestAKnownThreatDoesNotHideWhatIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const known, late = "known.example", "late.example"
		b := New(config.Config{})
		b.Use(engine.ServiceForTests(checkerOf(t, searchFunc(func(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
			if slices.Contains(prefixes, lookup.Prefix(prefixesOf(known))) {
				return threats{[]string{known}}.Search(ctx, prefixes)
			}
			time.Sleep(time.Second)
			return threats{[]string{late}}.Search(ctx, prefixes)
		}), known, late)))
		wantConfirmed(t, b, 1, []string{known})
		wantConfirmed(t, b, 1, []string{known, late})
	})
}

// The operator's allowed names come before the operator's blocked names, and both before Safe Browsing.
func TestWhatDecidesFirst(t *testing.T) {
	b := opened(t, "", config.Block{
		Zones: []string{"example."}, Except: []string{"lan.example."}, Hosts: hosts("allowed.example"),
		Own: []config.OwnFile{{Path: testkit.Write(t, t.TempDir(), "own.txt", "own.example\nallowed.example\n")}},
	})
	for qname, want := range map[string]Explained{
		"own.example.":     {Decision: lookup.Decision{By: lookup.ByBlock, Verdict: lookup.Unsafe, Expression: "own.example/"}},
		"allowed.example.": {Decision: lookup.Decision{By: lookup.ByAllow}},
		"clean.example.":   {Note: "only your own lists are in force"},
		"own.lan.example.": {Unchecked: true, Note: "not checked: it is in no zone of this server block, or in one of its exceptions"},
		"own.example.net.": {Unchecked: true, Note: "not checked: it is in no zone of this server block, or in one of its exceptions"},
	} {
		testkit.Equal(t, qname+" is in scope", b.InScope(strings.ToUpper(qname)), !want.Unchecked)
		got := b.Explain(lookup.FromQname(qname), qname)
		got.List = ""
		testkit.Equal(t, qname, got, want)
	}
}

// An exception that is as wide as the entry would let a whole top-level domain pass, whatever Safe Browsing says.
func TestWhatLetsANamePassIsAboutNoWholeSuffix(t *testing.T) {
	for list, want := range map[string]string{
		".example.zip\n":  "remove example.zip from the list, or add: allow example.zip",
		".zip\n":          "remove zip from the list, or add: allow www.example.zip",
		"* CNAME .\n":     "remove * from the list, or add: allow www.example.zip",
		"other.example\n": "",
	} {
		b := opened(t, "", config.Block{Own: []config.OwnFile{{Path: testkit.Write(t, t.TempDir(), "own.txt", list)}}})
		testkit.Equal(t, list, b.Why(lookup.FromQname("www.example.zip.")).Unblock, want)
	}
}

func TestServerBlocksThatNeedTwoEnginesForOneServerOrFolderAreRefused(t *testing.T) {
	keyed := func(key, db string, cache int) config.Engine { return config.Engine{APIKey: key, DB: db, Cache: cache} }
	asking := func(key, endpoints string) config.Engine { return config.Engine{APIKey: key, Endpoint: endpoints} }
	for _, tc := range []struct {
		name         string
		first, again config.Engine
		want         string
	}{
		{"equal settings", keyed("A", "/db", 0), keyed("A", "/db", 0), ""},
		{"another key in another folder", keyed("A", "/db", 0), keyed("B", "/other", 0), ""},
		{"another key without folders", keyed("A", "", 0), keyed("B", "", 0), ""},
		{"another key in the same folder", keyed("A", "/db", 0), keyed("B", "/db", 0), "own db"},
		{"the same key in another folder", keyed("A", "/db", 0), keyed("A", "/other", 0), "with the same key"},
		{"the same key with another cache", keyed("A", "", 0), keyed("A", "", 7), "with the same key"},
		{"equal endpoints", asking("", "http://a http://b"), asking("", "http://a http://b"), ""},
		{"other endpoints", asking("", "http://a http://b"), asking("", "http://c http://d"), ""},
		{"another order with another key", asking("K", "http://a http://b"), asking("L", "http://b http://a"), ""},
		{"fewer endpoints", asking("", "http://a http://b"), asking("", "http://b"), "asks http://b with the same key and other endpoints"},
		{"more endpoints", asking("", "http://b"), asking("", "http://a http://b"), "asks http://b with"},
		{"another order", asking("", "http://a http://b"), asking("", "http://b http://a"), "in the same order"},
		{"own lists only", config.Engine{}, config.Engine{}, ""},
	} {
		block := func(e config.Engine) *Block {
			return New(config.Config{Online: tc.name != "own lists only", Secret: e.APIKey, Engine: e})
		}
		var c Claims
		testkit.Must(t, c.Add(block(tc.first)))
		err := c.Add(block(tc.again))
		if tc.want == "" {
			testkit.Is(t, tc.name, err, nil)
		} else {
			testkit.WantError(t, err, tc.want)
		}
	}
}

// "Decided by list" would sound like a match.
func TestANameOnNoListIsNotDecidedByAList(t *testing.T) {
	b, h := New(config.Config{Online: true}), lookup.FromQname("example.org.")
	got := b.answerOf(h, Explained{Decision: lookup.Decision{By: lookup.ByList}, Note: "no threat list has it"})
	testkit.Equal(t, "on no list", []string{got.Verdict, got.DecidedBy, got.Note}, []string{status.VerdictPasses, "", "no threat list has it"})
	got = b.answerOf(h, Explained{Decision: lookup.Decision{Verdict: lookup.Unsure, By: lookup.ByList, List: "se-4b"}})
	testkit.Equal(t, "on a list", []string{got.Verdict, got.DecidedBy, got.List}, []string{status.VerdictSuspected, "list", "se-4b"})
}

func TestWhyDoesNotDenyWhatIsForgotten(t *testing.T) {
	alone(t)
	b, h := New(config.Config{Online: true, Block: config.Block{Zones: []string{"."}}}), lookup.FromQname("example.org.")
	const doubt = "this may be one of them"
	testkit.WantNone(t, b.Why(h).Note, doubt) // before anything was blocked
	block := func(from, to int) {
		for i := from; i < to; i++ {
			process.recent.Blocked(status.Blocked{List: "se-4b", Name: fmt.Sprintf("%d.example", i), Zones: b.zones()}, time.Now())
		}
	}
	block(0, 10_000)
	testkit.WantNone(t, b.Why(h).Note, doubt)
	got := b.Why(lookup.FromQname("7.example."))
	testkit.WantParts(t, got.Note, "it was blocked at 20")
	kept := []any{got.Verdict, strings.HasSuffix(got.Note, "than are kept")}
	testkit.Equal(t, "a name that was blocked and is not kept, and the note says so", kept, []any{status.VerdictUnknown, true})
	block(10_000, 270_000)
	testkit.Equal(t, "the note ends with a doubt", strings.HasSuffix(b.Why(h).Note, doubt), true)
}

func TestTimesOfUntil(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 22, 17, 30, 0, 0, zone)
	for _, tt := range []struct{ length, until, want string }{
		{"", "18:00", "2026-11-22T18:00:00+01:00"}, {"", "17:30", "2026-11-23T17:30:00+01:00"}, {"", "08:15:30", "2026-11-23T08:15:30+01:00"},
		{"", "2026-11-22", "2026-11-23T00:00:00+01:00"}, {"", "2026-11-22 18:00", "2026-11-22T18:00:00+01:00"},
		{"", "2026-11-22T18:00:00Z", "2026-11-22T19:00:00+01:00"},
		{"", "2026-11-22T17:00", "-until: 2026-11-22T17:00 is in the past"},
		{"", "tomorrow", `-until: "tomorrow" is not a time such as 18:00, 2026-11-22 or "2026-11-22 18:00"`},
		{"", "25:00", `-until: "25:00" is not a time such as 18:00, 2026-11-22 or "2026-11-22 18:00"`},
		{"30m", "", "2026-11-22T18:00:00+01:00"}, {"90s", "", "2026-11-22T17:31:30+01:00"}, {"2h", "", "2026-11-22T19:30:00+01:00"},
		{"0s", "", `"0s" is less than a second`}, {"-1h", "", `"-1h" is less than a second`}, {"400d", "", `"400d" is more than 366 days`},
		{"99999999999d", "", `"99999999999d" is more than 366 days`}, {"-213503d", "", `"-213503d" is less than a second`}, {"d", "", `"d" is not a duration such as 30m, 2h or 7d`},
	} {
		end, err := EndOf(tt.length, tt.until, now)
		got := end.Format(time.RFC3339)
		if err != nil {
			got = err.Error()
		}
		testkit.Equal(t, tt.length+tt.until, got, tt.want)
	}
}

func TestUntilIsTheNextTimeWhereClocksAreChanged(t *testing.T) {
	for _, test := range []struct{ name, zone, now, until, want string }{
		{"no change", "Europe/Berlin", "2027-07-01T12:00:00+02:00", "11:59", "2027-07-02T11:59:00+02:00"},
		{"a fraction before", "Europe/Berlin", "2027-07-01T11:58:59.9+02:00", "11:59", "2027-07-01T11:59:00+02:00"},
		{"of no hour", "America/New_York", "2027-03-14T01:45:00-05:00", "02:30", "2027-03-14T03:00:00-04:00"},
		{"of no hour, where Date goes ahead", "Europe/Berlin", "2027-03-28T01:45:00+01:00", "02:30", "2027-03-28T03:00:00+02:00"},
		{"after that hour", "America/New_York", "2027-03-14T01:45:00-05:00", "03:30", "2027-03-14T03:30:00-04:00"},
		{"the next day has it", "America/New_York", "2027-03-14T03:15:00-04:00", "02:30", "2027-03-15T02:30:00-04:00"},
		{"the first of two", "America/New_York", "2026-11-01T00:50:00-04:00", "01:30", "2026-11-01T01:30:00-04:00"},
		{"the second of two", "America/New_York", "2026-11-01T01:40:00-04:00", "01:30", "2026-11-01T01:30:00-05:00"},
		{"the first of two, where Date takes the second", "Europe/Berlin", "2027-10-31T02:10:00+02:00", "02:30", "2027-10-31T02:30:00+02:00"},
		{"after both", "Europe/Berlin", "2027-10-31T02:40:00+01:00", "02:30", "2027-11-01T02:30:00+01:00"},
		{"the next day has no midnight", "America/Sao_Paulo", "2018-11-03T22:00:00-03:00", "00:00", "2018-11-04T01:00:00-02:00"},
		{"half an hour", "Australia/Lord_Howe", "2027-04-04T01:50:00+11:00", "01:45", "2027-04-04T01:45:00+10:30"},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Skip(err)
		}
		now, err := time.Parse(time.RFC3339, test.now)
		testkit.Must(t, err)
		end, err := EndOf("", test.until, now.In(zone))
		testkit.Must(t, err)
		testkit.Equal(t, test.name, end.Format(time.RFC3339), test.want)
	}
}

// What an own list blocked lately, and does not block any more, passes: the list is here.
func TestANameThatAnOwnListBlockedPassesAgain(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "own.txt", "a.example\n")
	b, h := opened(t, "", config.Block{Own: []config.OwnFile{{Path: file}}}), lookup.FromQname("a.example.")
	b.Blocked(question("a.example."), "", "", b.Check(h).Decision, time.Now())
	testkit.Equal(t, "verdict and list", []string{b.Why(h).Verdict, b.Why(h).List}, []string{status.VerdictBlocked, file})
	other := New(config.Config{Block: config.Block{Zones: []string{"."}}}) // of other clients, by a view
	why := other.Why(h)
	testkit.Equal(t, "a block without the list blocks it", why.Verdict == status.VerdictBlocked, false)
	testkit.WantNone(t, why.Note, "again")
	changes(t, &Process{blocks: []*Block{b}}, Change{Host: h, Remove: true})
	why = b.Why(h)
	got := []bool{why.Verdict == status.VerdictBlocked, strings.HasSuffix(why.Note, "; it passes again: the list has it no more")}
	testkit.Equal(t, "it is blocked, and the note says that it is not", got, []bool{false, true})
}

// A router starts before its clock is set.
func TestWhenAStateBeganByAClockThatWasSet(t *testing.T) {
	boot := time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)
	set := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		began, now moment
		want       time.Time
	}{
		"none":                 {moment{}, moment{set, time.Hour}, time.Time{}},
		"set forward by years": {moment{boot, time.Minute}, moment{set, time.Hour}, set.Add(-59 * time.Minute)},
		"set back":             {moment{set, time.Minute}, moment{set.Add(-24 * time.Hour), time.Hour}, set.Add(-24*time.Hour - 59*time.Minute)},
		"time, or a suspend":   {moment{set, time.Minute}, moment{set.Add(9*time.Hour + time.Second), 9*time.Hour + time.Minute}, set},
		"no clock since boot":  {moment{boot, 0}, moment{set, 0}, boot},
	} {
		testkit.Equal(t, name, tc.began.seen(tc.now.at, tc.now.booted).UTC(), tc.want)
	}
}
