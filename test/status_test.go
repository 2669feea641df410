package test

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// pageURL returns where the log says that the status page is.
func (w *world) pageURL(lines *testkit.Lines) string {
	w.t.Helper()
	const form = `The status page is at (http://\S+/)`
	testkit.Until(w.t, "the line of the status page", func() bool { return len(lines.About("The status page is at ")) > 0 })
	return regexp.MustCompile(form).FindStringSubmatch(lines.About("The status page is at ")[0])[1]
}

// made waits for a page with a part: a page is made once a second.
func (w *world) made(url, part string) {
	w.t.Helper()
	testkit.Until(w.t, "the page to have "+part, func() bool { return strings.Contains(get(w.t, url), part) })
}

func wantPage(t *testing.T, page string, parts, not []string) {
	t.Helper()
	testkit.WantParts(t, page, parts...)
	testkit.WantNone(t, page, not...)
}

func TestTheStatusPageSaysWhatProtectsAndWhatWasBlocked(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/", "suspected.example.net/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.org\n")
	page := "status " + testkit.FreeAddr(t)
	silent := strings.Replace(w.corefile(page), ".:0 {", "example.com:0 {", 1)
	w.start(w.corefile(page+" names", "block "+own, "budget 100") + strings.Replace(silent, "status", "budget 100\n\t\tstatus", 1))
	w.updated(1)
	url := w.pageURL(lines)
	wantPage(t, get(t, url), []string{"Protected by Safe Browsing v5 and own lists", "Phishing", "se-4b", "Nothing.", "own.txt blocks 1 entry", "Searches left today: 100 of 100"}, []string{"NOT", own, "secret"})
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing) // of the server block without names
	w.wantBlocked("BLOCKED.example.org.", dns.TypeA, "blocklist own.txt")
	w.wantBlocked("blocked.example.org.", dns.TypeA, "blocklist own.txt")
	w.wantPassed("fine.example.org.", dns.TypeA)
	searches := len(w.searches())
	w.made(url, "own.txt 2×")
	wantPage(t, get(t, url), []string{"Phishing 1×", ">blocked.example.org</a>", "sudo safebrowsing allow -for 1h blocked.example.org", "questions blocked", "<svg"},
		[]string{"evil.example.com", "fine.example.org", "127.0.0.1<", "Asked by"})
	wantPage(t, get(t, url+"status.json"), []string{`"state":"protected"`, `"name":"blocked.example.org"`, `"client":""`}, []string{"evil.example.com", "fine.example.org"})
	for host, want := range map[string][]string{
		"evil.example.com":                   {"evil.example.com is blocked", "suspected social engineering (Safe Browsing)</li>", "List: se-4b", "To let it pass: allow evil.example.com"},
		"https://blocked.example.org/x":      {"blocked.example.org is blocked", "List: own.txt"},
		"unknown.evil.example.com.":          {"unknown.evil.example.com is blocked", "Decided by: cache"},
		"suspected.example.net":              {"suspected.example.net is suspected", "the server is asked about it on a query", "List: se-4b"},
		"fine.example.org":                   {"fine.example.org passes", "no threat list has it"},
		"http://192.0.2.1/x":                 {"192.0.2.1 passes", "an IP address: a browser that opens it asks no name server"},
		"not a host":                         {"This is not a host name."},
		"%3Cscript%3Ealert(1)%3C/script%3E.": nil,
	} {
		wantPage(t, get(t, url+"?host="+strings.ReplaceAll(host, " ", "+")), want, []string{"<script", map[bool]string{true: "no threat list", false: "<script"}[host == "suspected.example.net"]})
	}
	testkit.Equal(t, "searches: the page asks no server", len(w.searches()), searches)
	testkit.Must(t, w.reload(w.corefile(page+" names", "block "+own, "budget 100", "monitor")))
	w.made(url, "NOT protected")
	wantPage(t, get(t, url), []string{"NOT protected", "The server block for . has monitor", "blocked.example.org"}, []string{"in part"})
	lines.Only(t, "The status page is at ")
	testkit.Must(t, w.reload(w.corefile("budget 100")))
	if response, err := http.Get(url); err == nil {
		response.Body.Close()
		t.Error("Expected the page to end with the property status")
	}
}

func TestAStatusPageThatCannotBeServedIsAnErrorAndNamesAreChecked(t *testing.T) {
	lines := testkit.Capture(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer taken.Close()
	w := newWorld(t)
	w.run("status "+taken.Addr().String(), blockList(t, "sb-test.example"))
	w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	testkit.WantParts(t, lines.Only(t, "There is no status page at "+taken.Addr().String()), "[ERROR]", "address already in use", "Choose another address")
}

// While a reload starts the new server block, the page of the old one has the port.
func TestAReloadMovesTheStatusPageToAnotherAddressOfItsPort(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	_, port, err := net.SplitHostPort(testkit.FreeAddr(t))
	testkit.Must(t, err)
	w.run("status 127.0.0.1:"+port, blockList(t, "sb-test.example"))
	w.pageURL(lines)
	testkit.Must(t, w.reload(w.corefile("status 0.0.0.0:"+port+" public", blockList(t, "sb-test.example"))))
	testkit.Until(t, "the page at the new address", func() bool { return len(lines.About("The status page is at ")) == 2 })
	get(t, "http://127.0.0.1:"+port+"/")
	testkit.Must(t, w.reload(w.corefile(blockList(t, "sb-test.example"))))
	if response, err := http.Get("http://127.0.0.1:" + port + "/"); err == nil {
		response.Body.Close()
		t.Error("Expected the page to end with the property status")
	}
}
