package test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// migrate reloads, or restarts, from version 4 of the protocol into version 5, when
// lists of version 4 are in force.
func migrate(t *testing.T, w *world, restart bool) {
	t.Helper()
	w.protocol = protocol.DialectV4
	w.start(w.corefile())
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.protocol = protocol.DialectV5
	w.google.SetMinimumWait("", time.Second)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		w.google.SetMinimumWait(list, time.Second)
	}
	if restart {
		w.stop()
		w.start(w.corefile())
		return
	}
	testkit.Must(t, w.reload(w.corefile()))
}

// v5Fetch returns the nth request of version 5 for lists.
func (w *world) v5Fetch(n int) protocoltest.Request {
	w.t.Helper()
	var found []protocoltest.Request
	testkit.Until(w.t, "a request of version 5", func() bool {
		ofVersion4 := func(r protocoltest.Request) bool { return r.Method == "fetch" }
		found = slices.DeleteFunc(w.google.Requests("update"), ofVersion4)
		return len(found) > n
	})
	return found[n]
}

func TestMigrationKeepsTheLists(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for name, test := range map[string]struct{ restart, memory bool }{
		"by a reload": {}, "by a restart": {restart: true}, "by a reload, lists in memory": {memory: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.memory {
				w.db = "off"
			}
			w.threaten("evil.example.com/")
			migrate(t, w, test.restart)
			w.wantBlocked("evil.example.com.", dns.TypeA, phishing) // before the first request of version 5
			states := w.google.Requests("fetch")[0]
			if len(states.Versions) != 0 {
				t.Errorf("Expected the first request of all to have no state, got %x", states.Versions)
			}
			first := w.v5Fetch(0)
			if !slices.Equal(first.Lists, []string{"se-4b", "mw-4b", "uws-4b"}) || len(first.Versions) != 3 {
				t.Errorf("Expected the states of all lists as versions, got %q and %x", first.Lists, first.Versions)
			}
			// The server takes the states: a partial update builds on the list.
			w.threaten("evil.example.com/", "new.example.com/")
			testkit.Until(w.t, "the partial update", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
			w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
			if second := w.v5Fetch(1); len(second.Versions) != 3 {
				t.Errorf("Expected versions again, got %x", second.Versions)
			}
		})
	}
}

func TestMigrationToAServerThatKnowsNoneOfTheStates(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.protocol = protocol.DialectV4
	w.start(w.corefile())
	w.updated(1)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		w.google.ForgetVersions(list)
	}
	w.threaten("evil.example.com/", "new.example.com/")
	w.protocol = protocol.DialectV5
	testkit.Must(t, w.reload(w.corefile()))
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(w.t, "the full update", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	if first := w.v5Fetch(0); len(first.Versions) != 3 {
		t.Errorf("Expected the states as versions, got %x", first.Versions)
	}
}

// A list with longer prefixes does not help version 5.
func TestMigrationOfAListOfMixedLengthsStartsAnew(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	long := sha256.Sum256([]byte("long.example.com/"))
	w.google.Publish("mw-4b", [][]byte{long[:5]})
	w.google.AddThreat("long.example.com/", sbv5.ThreatType_MALWARE)
	w.protocol = protocol.DialectV4
	w.start(w.corefile())
	w.updated(1)
	w.google.Publish("mw-4b", [][]byte{long[:4]})
	w.protocol = protocol.DialectV5
	testkit.Must(t, w.reload(w.corefile()))
	w.wantBlocked("www.long.example.com.", dns.TypeA, "suspected malware (Safe Browsing)") // until the list is there
	first := w.v5Fetch(0)
	if len(first.Versions) != 2 {
		t.Errorf("Expected the states of the two other lists, got %x", first.Versions)
	}
	if got := lines.About("was fetched by another protocol"); len(got) == 0 || !strings.Contains(got[0], "mw-4b") {
		t.Errorf("Expected a line about mw-4b, got %q", got)
	}
}

func TestVersion4AsksInTheLengthThatIsStored(t *testing.T) {
	w := newWorld(t)
	w.protocol = protocol.DialectV4
	long := sha256.Sum256([]byte("long.example.com/"))
	w.google.Publish("se-4b", [][]byte{long[:7]})
	w.google.AddThreat("long.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.start(w.corefile())
	w.updated(1)
	w.wantBlocked("www.long.example.com.", dns.TypeA, phishing)
	searches := w.searches()
	if len(searches) != 1 || len(searches[0].Prefixes) != 1 || string(searches[0].Prefixes[0]) != string(long[:7]) {
		t.Errorf("Expected one search for %x, got %+v", long[:7], searches)
	}
}

// During the minimum wait of fullHashes.find nothing is sent, and a candidate
// passes.
func TestVersion4WaitsBetweenSearches(t *testing.T) {
	w := newWorld(t)
	w.protocol = protocol.DialectV4
	w.threaten("evil.example.com/", "worse.example.com/")
	w.google.SetFindWait(time.Hour)
	w.start(w.corefile())
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantPassed("worse.example.com.", dns.TypeA)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing) // from the cache
	w.stop()
	w.google.ClientStarted()
	w.start(w.corefile())
	w.wantPassed("evil.example.com.", dns.TypeA)
	if n := len(w.searches()); n != 1 {
		t.Errorf("Expected one search, the wait being kept over a restart, got %d", n)
	}
}

func TestVersion4AsksForAPowerOfTwo(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.protocol = protocol.DialectV4
	w.start(w.corefile("max_entries 5000"))
	w.updated(1)
	if got := w.fetches()[0].MaxDatabase; got != 4096 {
		t.Errorf("Expected to ask for 4096 entries at most, got %d", got)
	}
	if got := lines.About("max_entries 5000 is rounded to 4096"); len(got) != 1 {
		t.Errorf("Expected one line that says so, got %q", got)
	}
}

// After a reload into version 5 that failed, the next one takes over what version 4 holds now.
func TestMigrationAfterAFailedOne(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	w := newWorld(t)
	w.db = "off"
	w.protocol = protocol.DialectV4
	w.threaten("evil.example.com/")
	for _, list := range []string{"", "se-4b", "mw-4b", "uws-4b"} {
		w.google.SetMinimumWait(list, 2*time.Second)
	}
	w.start(w.corefile())
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.protocol = protocol.DialectV5
	w.failReload(w.corefile())
	w.threaten("evil.example.com/", "new.example.com/")
	testkit.Until(w.t, "the update by version 4", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
	old := w.engine()
	firstContact(t, time.Hour) // nothing of version 5 comes meanwhile
	testkit.Must(t, w.reload(w.corefile()))
	w.wantBlocked("new.example.com.", dns.TypeA, phishing)
	testkit.Until(w.t, "the lists of version 4 to be let go of", old.Schedule.Over)
}

// The same where the reload failed before anything had been fetched.
func TestMigrationAfterAFailedOneAtTheStart(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	w := newWorld(t)
	w.db = "off"
	w.protocol = protocol.DialectV4
	w.threaten("evil.example.com/")
	firstContact(t, time.Second)
	w.start(w.corefile())
	w.protocol = protocol.DialectV5
	w.failReload(w.corefile())
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	firstContact(t, time.Hour)
	testkit.Must(t, w.reload(w.corefile("cache 77")))
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
}

func init() {
	ofLaterProtocols = append(ofLaterProtocols, advised{"version 4", 1, protocol.DialectV4, "", "Safe Browsing", onSafeBrowsing})
	listFaults["v4"], searchFaults["v4"] = protocoltest.ListFaultsV4(), protocoltest.SearchFaultsV4()
	strictColumn = "v4"
	moreVariants = append(moreVariants, func(w *world) []reloadVariant {
		v4 := *w
		v4.protocol = protocol.DialectV4
		return []reloadVariant{
			{world: w, corefile: v4.plain(), requests: 1}, // another protocol has other lists
			{world: w, corefile: v4.plain("max_entries 4096")},
		}
	})
}
