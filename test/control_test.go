package test

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func (w *world) door() *control.Client {
	w.t.Helper()
	client, err := control.Find(w.t.Context(), []string{w.db})
	testkit.Must(w.t, err)
	return client
}

func tell[T any](w *world, path string, query url.Values) (v T) {
	w.t.Helper()
	_, err := w.door().Get(w.t.Context(), path, query, &v)
	testkit.Must(w.t, err)
	return v
}

func (w *world) asked(name string) truth.Why {
	return tell[truth.Why](w, "/why", url.Values{"name": {name}})
}

func (w *world) told() truth.Report { return tell[truth.Report](w, "/status", nil) }

func (w *world) order(path, body string) {
	w.t.Helper()
	var v any
	_, err := w.door().Post(w.t.Context(), path, json.RawMessage(body), &v)
	testkit.Must(w.t, err)
}

// What a program has confirmed over the door costs queries no second search; what no list holds is not sent.
func TestPrefixesAreConfirmedOverTheDoor(t *testing.T) {
	w := threatened(t, "phishing.example/")
	w.run()
	hash, clean := lookup.HashExpression("phishing.example/"), lookup.HashExpression("clean.example/")
	var c block.Confirmed
	_, err := w.door().Post(t.Context(), "/confirm", block.Question{Prefixes: append([]byte(hash.Prefix(4)), clean.Prefix(4)...)}, &c)
	testkit.Must(t, err)
	testkit.Equal(t, "threats", [][]string{c.Answers[0].Threats, c.Answers[1].Threats}, [][]string{{hex.EncodeToString(hash[:])}, {}})
	w.wantBlocked("www.phishing.example.", dns.TypeA, phishing)
	w.wantOneSearch(hash[:4])
}

// An alias of a name that is blocked was blocked, and so says everybody who is asked.
func TestAnAliasThatWasBlockedIsNeverDenied(t *testing.T) {
	w := newWorld(t)
	w.upstream = aliases(t, "@ 60 IN CNAME www.phishing.example.")
	w.threaten("phishing.example/")
	w.run("inspect cname", "explain")
	says := func() [2]any { got := w.asked("alias.shop.example"); return [2]any{got.Verdict, got.Last != nil} }
	testkit.Equal(t, "verdict and that it was blocked, before", says(), [2]any{truth.VerdictPasses, false})
	w.wantBlocked("alias.shop.example.", dns.TypeA, phishing)
	got := w.asked("Alias.Shop.Example")
	if got.Verdict != truth.VerdictBlocked || got.Last == nil || got.Last.N != 1 || got.Last.Target != "www.phishing.example" || got.Last.List != "se-4b" ||
		!strings.Contains(got.Text, "alias.shop.example is blocked: it is an alias of www.phishing.example") || got.Allow != "safebrowsing allow -for 1h alias.shop.example" || got.Last.Confirmed.IsZero() {
		t.Errorf("%+v %+v", got, got.Last)
	}
	testkit.WantParts(t, w.why("alias.shop.example"), "verdict=unsafe", "list=se-4b", "expression=phishing.example/", "alias_of=www.phishing.example", "unblock=allow alias.shop.example")
	w.order("/allow", `{"name": "alias.shop.example", "for": "1h"}`)
	testkit.Equal(t, "verdict and that it was blocked, allowed", says(), [2]any{truth.VerdictPasses, true})
	testkit.Until(t, "the alias to pass", func() bool {
		m := w.ask("alias.shop.example.", dns.TypeA)
		return m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0
	})
	w.order("/allow", `{"name": "alias.shop.example", "remove": true}`)
	w.order("/allow", `{"name": "phishing.example"}`)
	testkit.Equal(t, "verdict and that it was blocked, its target allowed", says(), [2]any{truth.VerdictPasses, true})
	testkit.WantParts(t, w.asked("alias.shop.example").Answers[0].Note, "it passes again")
}

// When the answer of the server has expired a query would ask again: the name is suspected. But it was
// blocked, and that is what people ask about.
func TestANameBlockedLatelyIsNoMereSuspicion(t *testing.T) {
	testkit.Long(t)
	w := threatened(t, "evil-lately.example/")
	w.google.SetCacheDuration(time.Second)
	w.run("explain")
	testkit.Until(t, "the list", func() bool { return w.asked("evil-lately.example").Verdict == truth.VerdictSuspected })
	w.wantBlocked("evil-lately.example.", dns.TypeA, phishing)
	time.Sleep(1100 * time.Millisecond)
	got := w.asked("evil-lately.example")
	testkit.Equal(t, "now", [3]any{got.Verdict, got.Answers[0].Threat, got.Last.N}, [3]any{truth.VerdictBlocked, "social engineering", 1})
	testkit.WantParts(t, w.why("evil-lately.example"), "verdict=unsafe", "note=it was blocked under a minute ago")
	searches := len(w.searches())
	for n, want := range []string{truth.VerdictSuspected, truth.VerdictBlocked} { // without and with a confirmation
		got := tell[truth.Why](w, "/why", url.Values{"name": {"other.evil-lately.example"}, "confirm": []string{"1"}[:n]})
		testkit.Equal(t, "verdict, and searches", [2]any{got.Verdict, len(w.searches()) - searches}, [2]any{want, n})
	}
}

func TestAReloadKeepsTheDoorAndWhatWasBlocked(t *testing.T) {
	w := newWorld(t)
	lines := testkit.Capture(t)
	w.run(blockList(t, "sb-reload.example"))
	w.wantBlocked("sb-reload.example.", dns.TypeA, byOwn)
	before, err := os.Lstat(w.door().Socket)
	testkit.Must(t, err)
	testkit.Must(t, w.reload(w.corefile("monitor")))
	after, err := os.Lstat(w.door().Socket)
	if err != nil || !os.SameFile(before, after) || len(lines.About("The control socket is "+w.db)) != 1 {
		t.Errorf("another door: %v", err)
	}
	if got := w.asked("sb-reload.example"); got.Last == nil || got.Last.N != 1 {
		t.Errorf("%+v", got)
	}
	testkit.WantError(t, w.reload(w.corefile("unknown-property")))
	w.asked("sb-reload.example")
	w.stop()
	left, err := filepath.Glob(filepath.Join(w.db, "control*"))
	testkit.Must(t, err)
	testkit.Equal(t, "left behind", left, nil)
}

// In docs/command-line.md each line for a shell is a call of the door.
func TestCallsOfTheDocumentWork(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	w.run()
	calls := regexp.MustCompile(`(?m)^curl -s --unix-socket /run/coredns-safebrowsing/control.sock (?:-d '(.*)' |-X (POST) )?'?http://door(/[a-z]+)(?:\?([^']*))?'?$`)
	var found []string
	for _, line := range shellLines(sectionOf(t, "docs/command-line.md", "The control socket")) {
		m := calls.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s is no call", line)
			continue
		}
		var v any
		var err error
		if body := m[1]; body+m[2] != "" {
			_, err = w.door().Post(t.Context(), m[3], json.RawMessage(cmp.Or(body, "{}")), &v)
		} else {
			query, _ := url.ParseQuery(m[4])
			_, err = w.door().Get(t.Context(), m[3], query, &v)
		}
		if err != nil || v == nil {
			t.Errorf("%s: %v, %v", line, v, err)
		}
		found = append(found, m[3][1:])
	}
	for _, word := range control.Words {
		testkit.Equal(t, word+" is in the document", slices.Contains(found, word), true)
	}
}

// Whatever has been done to a server: the door, the page, explain, the metrics and the answers to queries say the same.
func TestAllWaysToAskAgreeInRandomStates(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	testkit.SameDay(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example/")
	names := []string{"evil.example", "www.evil.example", "own.example", "a.own.example", "fine.example", "nas.local"}
	corefile := func(more ...string) string {
		return w.corefile(append([]string{"explain", "status 127.0.0.1:0 names"}, more...)...)
	}
	own := "block " + writeFile(t, t.TempDir(), "own.txt", "# Issues: https://lists.example/issues\nown.example\n*.own.example\n")
	w.serve(corefile(own))
	page := w.pageURL(lines)
	logs := false // the Corefile has log
	load := func(more ...string) {
		testkit.Must(t, w.reload(corefile(more...)))
		logs = slices.Contains(more, "log")
	}
	steps := map[string]func(){
		"pause":   func() { w.order("/pause", `{"for": "10m"}`) },
		"resume":  func() { w.order("/resume", `{}`) },
		"allow":   func() { w.order("/allow", fmt.Sprintf(`{"name": %q, "for": "1h"}`, names[r.IntN(4)])) },
		"forget":  func() { w.order("/allow", fmt.Sprintf(`{"name": %q, "remove": true}`, names[r.IntN(4)])) },
		"block":   func() { w.order("/block", fmt.Sprintf(`{"name": %q}`, names[r.IntN(5)])) },
		"unblock": func() { w.order("/unblock", fmt.Sprintf(`{"name": %q}`, names[r.IntN(5)])) },
		"monitor": func() { load(own, "monitor") },
		"reload":  func() { load(own) },
		"except":  func() { load(own, "except own.example") },
		"wander":  func() { w.askFrom(fmt.Sprint("127.255.255.", 1+r.IntN(4)), "abc.dns.nextdns.io.") }, // a public encrypted resolver
		"log":     func() { load(own, "log") },
	}
	words := []string{"pause", "resume", "resume", "allow", "forget", "block", "unblock", "monitor", "reload", "reload", "except", "wander", "wander", "log"}
	for n := 0; n < 25 && !t.Failed(); n++ {
		word := words[r.IntN(len(words))]
		steps[word]()
		w.wantAgreement(fmt.Sprintf("after step %d, %s", n, word), page, names, logs)
	}
}

func (w *world) wantAgreement(where, page string, names []string, logs bool) {
	w.t.Helper()
	for _, name := range names {
		blocked := w.blocks(name + ".")
		var why truth.Why
		var explained, body string
		testkit.Until(w.t, "all answers while the same is true", func() bool { // with monitor a query does not wait for its search
			why, explained, body = w.asked(name), w.why(name), get(w.t, page+"?host="+name)
			return w.asked(name).Text == why.Text
		})
		testkit.Equal(w.t, fmt.Sprintf("%s: %s is blocked, the door says %+v", where, name, why), why.Verdict == truth.VerdictBlocked, blocked)
		verdict := map[string]string{"blocked": "unsafe", "passes": "safe", "suspected": "unsure", "unknown": "unknown"}[why.Verdict]
		testkit.WantParts(w.t, where+": "+name+": "+explained, ": verdict="+verdict)
		testkit.WantParts(w.t, where+": "+name+": "+body, why.Text, why.Report)
		testkit.Equal(w.t, where+": "+name+": the page says where mistakes are reported", strings.Contains(body, "Report it"), why.Report != "")
		if blocked {
			testkit.Equal(w.t, where+": "+name+": mistakes are reported", why.Report != "", filepath.Base(why.Answers[0].List) == "own.txt")
		}
	}
	r := w.told()
	w.made(page, r.Headline)
	w.made(page, r.Today.InWords())
	testkit.Equal(w.t, where+": passed unconfirmed", r.Today.Unconfirmed, int(testkit.Metric(w.t, "verdicts_total", "verdict", "unsure")))
	byServer := int(testkit.Metric(w.t, "verdicts_total", "decided_by", "server"))
	testkit.Between(w.t, where+": confirmed in time, of names that the server decided about", r.Today.InTime, 0, byServer)
	testkit.Equal(w.t, where+": the metric of pauses", testkit.Metric(w.t, "paused", "zones", "."), map[bool]float64{true: 1}[r.Blocks[0].Paused.After(r.At)])
	blocked := 0
	for _, c := range r.Hour {
		blocked += c.N
		testkit.Equal(w.t, where+": blocked by "+c.List, int(testkit.Metric(w.t, "blocked_total", "list", c.List)), c.N)
	}
	timeless := func(text string) string {
		return regexp.MustCompile(`"at":"[^"]*"`).ReplaceAllString(strings.TrimSpace(text), "")
	}
	testkit.Until(w.t, "the page to tell programs what the door tells, byte for byte", func() bool {
		text, err := w.door().Get(w.t.Context(), "/status", nil, new(truth.Report))
		return err == nil && timeless(string(text)) == timeless(get(w.t, page+"status.json"))
	})
	// Addresses are told only where names are logged.
	testkit.Equal(w.t, where+": devices", int(testkit.Metric(w.t, "devices", "state", "also")), r.Devices.Also)
	sum := r.Devices.InWords()
	testkit.WantParts(w.t, w.why("dns.google"), sum)
	if r.Devices.Any() {
		w.made(page, sum+".")
	}
	for _, d := range r.Devices.Told {
		w.made(page, d.String())
	}
	testkit.Until(w.t, "the page to tell the addresses that the door tells", func() bool {
		return strings.Count(get(w.t, page), "127.255.255.") == len(r.Devices.Told)
	})
	testkit.Between(w.t, where+": addresses that the door tells", len(r.Devices.Told), 0, r.Devices.Also)
	testkit.Equal(w.t, where+": addresses without log", len(r.Devices.Told) > 0 && !logs, false)
	testkit.Equal(w.t, where+": blocked today, and in the last hour", r.Today.Blocked, blocked)
	testkit.Between(w.t, where+": blocked, of those that were checked", blocked, 0, r.Today.Checked)
}

func (w *world) blocks(name string) bool {
	w.t.Helper()
	return w.exchange("udp", new(dns.Msg).SetQuestion(name, dns.TypeA)).Rcode == dns.RcodeNameError
}

func (w *world) pageURL(lines *testkit.Lines) string {
	w.t.Helper()
	var line []string
	testkit.Until(w.t, "the line of the status page", func() bool {
		line = regexp.MustCompile(`The status page is at (http://\S+/)`).FindStringSubmatch(lines.String())
		return line != nil
	})
	return line[1]
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
	w := threatened(t, "evil.example.com/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.org\n")
	page := "status " + testkit.FreeAddr(t)
	silent := strings.Replace(w.corefile(page), ".:0 {", "example.com:0 {", 1)
	w.serve(w.corefile(page+" names", "block "+own, "budget 100") + strings.Replace(silent, "status", "budget 100\n\t\tstatus", 1))
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
		"fine.example.org":                   {"fine.example.org passes", "no threat list has it"},
		"not a host":                         {"This is not a host name."},
		"%3Cscript%3Ealert(1)%3C/script%3E.": nil,
	} {
		wantPage(t, get(t, url+"?host="+strings.ReplaceAll(host, " ", "+")), want, []string{"<script"})
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
}
