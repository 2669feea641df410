package test

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// recipe starts the Corefile of a section of a document, with the servers of the test in
// place of those on the internet.
func (w *world) recipe(document, heading string, replace ...string) {
	w.t.Helper()
	_, text, ok := strings.Cut(documents(w.t)[document], "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	corefiles := blocks(text, "corefile")
	if !ok || len(corefiles) != 1 {
		w.t.Fatalf("Expected a section %q with one Corefile, got %d", heading, len(corefiles))
	}
	w.start(strings.NewReplacer(append(replace,
		"bind 192.168.1.2\n", "bind "+w.host+"\n", "bind 127.0.0.1\n", "bind "+w.host+"\n", ". {", ".:0 {",
		"api_key_file /etc/coredns/safebrowsing.key", "endpoint "+w.endpoint+"\n\tconfirm_timeout 4s\n\tdb "+w.db,
		"testdata/", "../testdata/",
		"forward . 9.9.9.9", "forward . "+w.upstream,
	)...).Replace(corefiles[0]))
}

func TestRecipeOfOtherRulesForSomeClients(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	const child, adult = "127.0.0.77", "127.0.0.78"
	w.recipe("docs/network.md", "Other rules for some clients", "192.168.2.0/24", child+"/32")
	w.updated(1)
	for _, name := range []string{"malware.example.", "evil.example.com."} {
		if m := w.askFrom(child, name); !isBlocked(m) {
			t.Errorf("Expected %s to be blocked for children, got\n%v", name, m)
		}
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
