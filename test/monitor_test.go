package test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestLogSaysWhoAskedForWhatAndWhyItIsBlocked(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	own := writeFile(t, t.TempDir(), "own.txt", "# Issues: https://lists.example/issues\nblocked.example.org\n")
	// The target of another name would be decided on while that is confirmed, perhaps first.
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if q.Name != "alias.example.net." {
			return nil
		}
		return []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: "evil.example.com."}}
	})
	silent := strings.Replace(w.corefile(blockList(t, "sb-test.example")), ".:0 {", "example:0 {", 1)
	w.start(w.corefile("log", "inspect cname", "block "+own) + silent)
	w.updated(1)
	const threat = ": suspected social engineering (Safe Browsing), expression evil.example.com/, list se-4b, decided by "
	for _, tc := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"www.evil.example.com.", dns.TypeA, "Blocked www.evil.example.com. A for 127.0.0.1" + threat + "server"},
		{"again.evil.example.com.", dns.TypeHTTPS, "Blocked again.evil.example.com. HTTPS for 127.0.0.1" + threat + "cache"},
		{"alias.example.net.", dns.TypeAAAA, "Blocked alias.example.net. AAAA for 127.0.0.1" + threat + "cache"},
		{"blocked.example.org.", dns.TypeA, "Blocked blocked.example.org. A for 127.0.0.1: blocklist own.txt, expression blocked.example.org/, list " + own + ", decided by block"},
	} {
		testkit.Equal(t, tc.name+" is blocked", isBlocked(w.ask(tc.name, tc.qtype)), true)
		testkit.Until(w.t, "the line", func() bool { return len(lines.About(tc.name)) > 0 })
		want := tc.want + ". A mistake? safebrowsing allow -for 1h " + strings.TrimSuffix(tc.name, ".")
		if strings.Contains(want, own) {
			want += ", report it at https://lists.example/issues"
		}
		if got := lines.About(tc.name); len(got) != 1 || !strings.HasSuffix(strings.TrimSpace(got[0]), want) {
			t.Errorf("Expected one line that ends with %q, got %q", want, got)
		}
	}
	w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	w.ask("evil.example.com.", dns.TypeMX)
	testkit.Equal(t, "lines: none of a server block without log, and none of a name that passes", len(lines.About("safebrowsing: Blocked ")), 4)
}

// Programs read the JSON form, so a line of it has just the fields that the example in the
// documents has.
func TestLogAsJSONIsAsDocumented(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	own := writeFile(t, t.TempDir(), "blocklist.txt", "malware.example\n")
	w.run("log json", "block "+own)
	w.wantBlocked("malware.example.", dns.TypeA, "blocklist blocklist.txt")
	testkit.Until(w.t, "the line", func() bool { return len(lines.About(`{"time"`)) > 0 })
	logged := lines.Only(t, `{"time"`)
	testkit.WantNone(t, logged, "[INFO]")
	examples := documents(t)["docs/corefile.md"]
	documented, _, _ := strings.Cut(examples[strings.Index(examples, `{"time"`):], "\n")
	var got, want map[string]any
	testkit.Must(t, errors.Join(json.Unmarshal([]byte(logged), &got), json.Unmarshal([]byte(documented), &want)))
	if at, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("time %v: %v", got["time"], err)
	}
	got["time"], want["client"], want["list"] = want["time"], "127.0.0.1", own
	if !maps.Equal(got, want) {
		t.Errorf("Expected what the document says, %v, got %v", want, got)
	}
}

func TestShutdownSaysHowManyNamesWereLeftOutOfTheLog(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.run("log", blockList(t, "sb-test.example"))
	for range 60 {
		w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	}
	logged := len(lines.About("Blocked sb-test.example."))
	w.stop()
	if left := lines.About("more name"); logged < 60 && len(left) == 0 {
		t.Errorf("Expected the shutdown to tell of %d names, got %q", 60-logged, left)
	}
}

// recipe starts the Corefile of a section of a document, with the servers of the test in
// place of those on the internet.
func (w *world) recipe(document, heading string, replace ...string) {
	w.t.Helper()
	corefile := onlyBlock(w.t, sectionOf(w.t, document, heading), "corefile")
	w.start(strings.NewReplacer(append(replace,
		"bind 192.168.1.2\n", "bind "+w.host+"\n", "bind 127.0.0.1\n", "bind "+w.host+"\n", ". {", ".:0 {",
		"api_key_file /etc/coredns/safebrowsing.key", "endpoint "+w.endpoint+"\n\tconfirm_timeout 10s\n\tdb "+w.db,
		"testdata/", "../testdata/",
		"forward . 9.9.9.9", "forward . "+w.upstream,
	)...).Replace(corefile))
}

func TestRecipeOfOtherRulesForSomeClients(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	const child, adult = "127.0.0.77", "127.0.0.78"
	w.recipe("docs/network.md", "Other rules for some clients", "192.168.2.0/24", child+"/32")
	w.updated(1)
	for _, name := range []string{"malware.example.", "evil.example.com."} {
		testkit.Equal(t, name+" is blocked for children", isBlocked(w.askFrom(child, name)), true)
		if m := w.askFrom(adult, name); m.Rcode != dns.RcodeSuccess || len(m.Answer) == 0 {
			t.Errorf("Expected %s to pass for adults, got\n%v", name, m)
		}
	}
	testkit.Until(w.t, "the line about the adult", func() bool { return len(lines.About("evil.example.com. A for "+adult+" would be blocked")) == 1 })
}

func TestRecipeOfNewlyRegisteredDomains(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	registered, allowed := newListServer(t, "# registered this week\nnew.example\ntool.example\n"), newListServer(t, "tool.example\n")
	w.recipe("docs/lists.md", "Lists by URL",
		"https://lists.example.org", registered.URL, "https://intranet.example.org", allowed.URL, "resolver 9.9.9.9", "")
	w.updated(1)
	testkit.Until(w.t, "both lists", func() bool {
		return isBlocked(w.ask("new.example.", dns.TypeA)) && !isBlocked(w.ask("tool.example.", dns.TypeA))
	})
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
}
