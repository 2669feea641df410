package test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
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

// A list with longer prefixes does not help version 5.
func TestMigrationOfAListOfMixedLengthsStartsAnew(t *testing.T) {
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	long := sha256.Sum256([]byte("long.example.com/"))
	w.google.Publish("mw-4b", [][]byte{long[:5]})
	w.google.AddThreat("long.example.com/", sbv5.ThreatType_MALWARE)
	w.protocol = protocol.DialectV4
	w.run("max_entries 5000") // it knows powers of two only
	testkit.Equal(t, "entries that are asked for", w.fetches()[0].MaxDatabase, 4096)
	lines.Only(t, "max_entries 5000 is rounded to 4096")
	w.wantBlocked("long.example.com.", dns.TypeA, w.blames("malware"))
	w.wantOneSearch(long[:5]) // version 4 asks in the length that is stored
	w.google.Publish("mw-4b", [][]byte{long[:4]})
	w.protocol = protocol.DialectV5
	testkit.Must(t, w.reload(w.corefile()))
	w.wantBlocked("www.long.example.com.", dns.TypeA, "suspected malware (Safe Browsing)") // until the list is there
	var first []protocoltest.Request
	testkit.Until(w.t, "a request of version 5", func() bool {
		ofVersion4 := func(r protocoltest.Request) bool { return r.Method == "fetch" }
		first = slices.DeleteFunc(w.fetches(), ofVersion4)
		return len(first) > 0
	})
	testkit.Equal(t, "states of the two other lists", len(first[0].Versions), 2)
	testkit.WantParts(t, strings.Join(lines.About("was fetched by another protocol"), ""), "mw-4b")
}

// After a reload into version 5 that failed, also before anything had been fetched, the next one takes over what version 4 holds now.
func TestMigrationAfterAFailedOne(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	for delay, next := range map[time.Duration][]string{0: nil, time.Second: {"cache 77"}} {
		t.Run(fmt.Sprint("a first contact after ", delay), func(t *testing.T) {
			w := threatened(t, "evil.example.com/")
			w.db = "off"
			w.protocol = protocol.DialectV4
			for _, list := range []string{"", "se-4b", "mw-4b", "uws-4b"} {
				w.google.SetMinimumWait(list, 2*time.Second)
			}
			firstContact(t, delay)
			if w.start(w.corefile()); delay == 0 {
				w.updated(1)
				w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
			}
			w.protocol = protocol.DialectV5
			w.failReload(w.corefile())
			w.threaten("evil.example.com/", "new.example.com/")
			testkit.Until(w.t, "the update by version 4", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
			old := w.engine()
			firstContact(t, time.Hour) // nothing of version 5 comes meanwhile
			testkit.Must(t, w.reload(w.corefile(next...)))
			w.wantBlocked("new.example.com.", dns.TypeA, phishing)
			testkit.Until(w.t, "the lists of version 4 to be let go of", old.Schedule.Over)
		})
	}
}

func init() {
	ofLaterProtocols = append(ofLaterProtocols, advised{"version 4", 1, protocol.DialectV4, "", "Safe Browsing", onSafeBrowsing})
	listFaults["v4"], searchFaults["v4"] = protocoltest.ListFaultsV4(), protocoltest.SearchFaults()
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

// CONTRIBUTING.md lists what is removed on the day version 4 ends. The list is all that is version
// 4's alone, and no other file of the programs or of the test server needs it.
func TestTheListOfVersion4IsWhole(t *testing.T) {
	listed := strings.Fields(onlyBlock(t, sectionOf(t, "CONTRIBUTING.md", "When version 4 has ended"), "txt"))
	const generated = "internal/protocol/pb/sbv4"
	var own []string
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err == nil && d.IsDir() && name == ".git":
			return fs.SkipDir
		case err != nil || d.IsDir():
		case strings.HasSuffix(name, "v4.go") || strings.HasSuffix(name, "v4_test.go") || path.Dir(name) == generated:
			own = append(own, name)
		case path.Ext(name) == ".go" && strings.Contains(file(t, name), generated+"\"\n"):
			t.Errorf("%s imports %s: move what needs it into a file whose name ends in v4", name, generated)
		}
		return err
	})
	testkit.Must(t, err)
	slices.Sort(listed)
	slices.Sort(own)
	testkit.Equal(t, "the list in CONTRIBUTING.md", listed, own)
}
