package test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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

// A list with longer prefixes does not help version 5.
func TestMigrationOfAListOfMixedLengthsStartsAnew(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	long := sha256.Sum256([]byte("long.example.com/"))
	w.google.Publish("mw-4b", [][]byte{long[:5]})
	w.google.AddThreat("long.example.com/", sbv5.ThreatType_MALWARE)
	w.protocol = protocol.DialectV4
	w.run()
	w.wantBlocked("long.example.com.", dns.TypeA, w.blames("malware"))
	w.wantOneSearch(long[:5]) // version 4 asks in the length that is stored
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

func TestVersion4AsksForAPowerOfTwo(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.protocol = protocol.DialectV4
	w.run("max_entries 5000")
	testkit.Equal(t, "entries that are asked for", w.fetches()[0].MaxDatabase, 4096)
	lines.Only(t, "max_entries 5000 is rounded to 4096")
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
	w.run()
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

// hostileList is an answer about se-4b in version 4, of 700 kB on the wire, with
// 100,000 sets of one entry: to merge them all takes minutes.
func hostileList(t *testing.T) []byte {
	t.Helper()
	const sets = 100_000
	update := []byte{0x08, 2, 0x10, 1, 0x18, 6, 0x20, 2} // social engineering, URL, any platform, full
	for i := range uint32(sets) {
		update = append(update, 0x2a, 12, 8, 1, 0x12, 8, 8, 4, 0x12, 4) // raw additions
		update = binary.BigEndian.AppendUint32(update, i)
	}
	update = append(update, 0x3a, 1, 'v') // the new state
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	z.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), update))
	testkit.Must(t, z.Close())
	return body.Bytes()
}

// A list that takes long to decode must not keep a reload, or readiness, waiting.
func TestReloadAndReadyDoNotWaitForAHostileList(t *testing.T) {
	testkit.Long(t)
	body, asked := hostileList(t), make(chan bool, 100)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/x-protobuf")
		rw.Header().Set("Content-Encoding", "gzip")
		rw.Write(body)
		asked <- true
	}))
	defer server.Close()
	w := newWorld(t)
	w.endpoint, w.protocol = server.URL, protocol.DialectV4
	w.start(w.corefile("lists se-4b mw-4b"))
	<-asked
	time.Sleep(time.Second) // the answer is being decoded now
	begun := time.Now()
	testkit.Must(t, w.reload(w.corefile("lists se-4b mw-4b", "cache 77")))
	testkit.Until(w.t, "readiness", w.ready)
	w.wantPassed("clean.example.com.", dns.TypeA)
	if took := time.Since(begun); took > files.WaitLimit/2 {
		t.Errorf("Expected a reload and readiness at once, took %s", took)
	}
}

// CONTRIBUTING.md lists what is removed on the day version 4 ends. The list is all that is version
// 4's alone, and no other file of the programs or of the test server needs it.
func TestTheListOfVersion4IsWhole(t *testing.T) {
	page, err := fs.ReadFile(repository, "CONTRIBUTING.md")
	testkit.Must(t, err)
	_, list, _ := strings.Cut(string(page), "\n## When version 4 has ended\n")
	_, list, _ = strings.Cut(list, "\n~~~ txt\n")
	list, _, _ = strings.Cut(list, "~~~")
	listed := strings.Fields(list)
	const generated = "internal/protocol/pb/sbv4"
	var own []string
	err = fs.WalkDir(repository, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && file == ".git" {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(file, "v4.go") || strings.HasSuffix(file, "v4_test.go") || path.Dir(file) == generated {
			own = append(own, file)
			return nil
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(repository, file)
		if err == nil && strings.Contains(string(text), generated+"\"\n") {
			t.Errorf("%s imports %s: move what needs it into a file whose name ends in v4", file, generated)
		}
		return err
	})
	testkit.Must(t, err)
	slices.Sort(listed)
	slices.Sort(own)
	if !slices.Equal(listed, own) {
		t.Errorf("CONTRIBUTING.md lists %q, and version 4 has %q", listed, own)
	}
}
