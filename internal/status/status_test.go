package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// In the words of some time zones there is a sign, which a page escapes.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// healthy is the report of a server that protects.
func healthy() Report {
	r := Report{
		At: now,
		Services: []Service{{Title: "Safe Browsing v5", Address: "https://sb.example", Mode: "local", Folder: "/db", Lists: []List{
			{Name: "se-4b", Title: "phishing", InForce: true, Entries: 3, Updated: now.Add(-time.Hour), NotBefore: now.Add(20 * time.Minute)},
			{Name: "mw-4b", Title: "malware", InForce: true, Updated: now.Add(-time.Hour)},
		}, Fetch: Hold{Until: now.Add(20 * time.Minute), Why: "minimum wait of the server"}}},
		Blocks: []Block{{Zones: ".", Own: []OwnList{{Name: "own.txt", Entries: 2}}}},
	}
	r.Judge()
	return r
}

func TestJudge(t *testing.T) {
	backoff := Hold{Until: now.Add(time.Hour), Failures: 2, Why: "back-off after 2 failures: status 503"}
	const full, part = "Protected by Safe Browsing v5 and own lists", "Protected in part, by Safe Browsing v5 and own lists"
	for _, tc := range []struct {
		name     string
		change   func(*Report)
		state    State
		headline string
		says     string // a cause, or for Protected a note
	}{
		{"healthy", func(*Report) {}, Protected, full, ""},
		{"no own list", func(r *Report) { r.Blocks[0].Own = nil }, Protected, "Protected by Safe Browsing v5", ""},
		{"an allow list protects from nothing", func(r *Report) { r.Blocks[0].Own[0].Allow = true }, Protected, "Protected by Safe Browsing v5", ""},
		{"an example list is no protection", func(r *Report) { r.Services, r.Blocks[0].Service = nil, -1 }, NotProtected, "NOT protected: Safe Browsing is off, and your own lists block 2 names", "add api_key_file FILE"},
		{"own lists only", func(r *Report) { r.Services, r.Blocks[0].Service, r.Blocks[0].Own[0].Entries = nil, -1, 12345 }, OwnLists, "Your own lists only (12,345 names): Safe Browsing is off", ""},
		{"follows", func(r *Report) { r.Services[0].Follows = true }, Protected, full, "Another process fetches the lists into /db"},
		{"back-off", func(r *Report) { r.Services[0].Fetch = backoff }, Protected, full, "not fetched before 2026-11-22T13:00:00Z (back-off after 2 failures"},
		{"own list fails", func(r *Report) { r.Blocks[0].Own[0].Trouble = "no such file" }, Protected, full, "The 2 entries read before stay in force"},
		{"own list without a name", func(r *Report) {
			r.Blocks[0].Own = append(r.Blocks[0].Own, OwnList{Name: "html.txt", Nothing: "looks like an HTML page"})
		}, Protected, full, "The list html.txt blocks nothing: it looks like an HTML page."},
		{"list missing", func(r *Report) { r.Services[0].Lists[1].InForce = false }, InPart, part, "List mw-4b (malware) is not in force: its names pass."},
		{"the server refuses a list", func(r *Report) {
			r.Services[0].Lists[1].InForce, r.Services[0].Lists[1].NotBefore = false, now.Add(time.Hour)
		}, InPart, part, "List mw-4b (malware) is not in force: its names pass. The server is not asked for it now: the log says why. Until 2026-11-22T13:00:00Z. \"safebrowsing doctor\" says"},
		{"no likely safe hosts", func(r *Report) { r.Services[0].Lists[1] = List{Name: "gc-32b"} }, InPart, part, "List gc-32b (likely safe) is not in force: until it is, mode realtime blocks no more than mode local."},
		{"list old", func(r *Report) {
			r.Services[0].Lists[0].Updated, r.Services[0].Lists[0].Old = now.Add(-72*time.Hour), true
		}, InPart, part, "last fetched 3 days ago. The server is not asked now (minimum wait of the server). Until 2026-11-22T12:20:00Z"},
		{"confirmations paused", func(r *Report) { r.Services[0].Search = backoff; r.Blocks[0].Own[0].Entries = 5000 }, InPart, "Protected in part, by own lists", "suspected names pass"},
		{"nothing left", func(r *Report) { r.Services[0].Search = backoff; r.Blocks[0].Own = nil }, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "For now the server block for . blocks only threats that were confirmed before."},
		{"nothing left but few names", func(r *Report) { r.Services[0].Search = backoff }, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "blocks only threats that were confirmed before and the 2 names of its own lists."},
		{"neither lists nor confirmations", func(r *Report) {
			r.Services[0].Search, r.Services[0].Lists, r.Blocks[0].Own = backoff, []List{{Name: "se-4b"}}, nil
		}, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "For now the server block for . blocks nothing."},
		{"what is not confirmed fails", func(r *Report) { r.Services[0].Search, r.Blocks[0].Fails = backoff, true }, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "status 503): suspected names get SERVFAIL."},
		{"paused", func(r *Report) { r.Blocks[0].Paused = now.Add(time.Minute) }, NotProtected, "NOT protected: blocking is paused", "safebrowsing resume"},
		{"a pause that has ended", func(r *Report) { r.Blocks[0].Paused = now.Add(-time.Minute) }, Protected, full, ""},
		{"monitor", func(r *Report) { r.Blocks[0].Monitor = true }, NotProtected, "NOT protected: monitor only logs", "has monitor"},
		{"one of two monitors", func(r *Report) { r.Blocks = append(r.Blocks, Block{Zones: "lan.", Monitor: true}) }, InPart, part, "server block for lan. has monitor"},
		{"the day is spent, not only a share", func(r *Report) {
			r.Services[0].Search, r.Services[0].InPart, r.Blocks[0].Own[0].Entries = Hold{Until: now.Add(time.Hour), Why: "the day's budget is spent"}, "1 client has spent its share.", 5000
		}, InPart, "Protected in part, by own lists", "Confirmations are paused (the day's budget is spent): suspected names pass. Until 2026-11-22T13:00:00Z. Raise budget"},
		{"an hour's part is spent", func(r *Report) {
			r.Services[0].Search = Hold{Until: now.Add(time.Hour), Why: updater.Hold{Budget: 200, Portion: updater.AnHour}.String()}
		}, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "the 50 searches that one hour may take of the day's 200 are spent): suspected names pass. Until 2026-11-22T13:00:00Z. Raise budget if this happens often"},
		{"the count of searches is damaged", func(r *Report) {
			r.Services[0].Search = Hold{Until: now.Add(time.Hour), Why: updater.Hold{Budget: 200, Portion: updater.Unknown}.String()}
		}, NotProtected, "NOT protected: Safe Browsing v5 can confirm no name", "the number of searches spent today is unknown): suspected names pass. Until 2026-11-22T13:00:00Z. Wait, or stop CoreDNS, delete the file"},
		{"two of the same zones", func(r *Report) {
			r.Blocks = append(r.Blocks, Block{Zones: ".", Place: "Corefile:9", Monitor: true})
		}, InPart, part, "The server block for . at Corefile:9 has monitor"},
		{"a share is spent", func(r *Report) { r.Services[0].InPart = "1 client has spent its share." }, InPart, part, "1 client has spent its share."},
		{"its protocol ends", func(r *Report) { r.Services[0].Ending = "It ends tomorrow" }, Protected, full, "It ends tomorrow."},
		{"its protocol has ended", func(r *Report) { r.Services[0].Ending, r.Services[0].Ended = "It has ended", true }, InPart, part, "It has ended."},
		{"clients are led away", func(r *Report) { r.Blocks[0].Led = true }, Protected, full, "keep_clients off: resolver.arpa is forwarded"},
		{"no list yet", func(r *Report) {
			r.Services[0].Lists, r.Services[0].Fetch, r.Blocks[0].Own = []List{{Name: "se-4b"}}, Hold{}, nil
		}, NotProtected, "NOT protected: no list of Safe Browsing v5 is in force", "Wait a minute"},
		{"all lists are empty", func(r *Report) { r.Services[0].Lists[0].Entries = 0 }, NotProtected, "NOT protected: the lists of Safe Browsing v5 are empty", "For now the server block for . blocks only the 2 names of its own lists."},
		{"all lists are empty, and own lists have many names", func(r *Report) {
			r.Services[0].Lists[0].Entries, r.Blocks[0].Own[0].Entries = 0, 5000
		}, InPart, "Protected in part, by own lists", "The lists of Safe Browsing v5 are empty: it blocks nothing."},
		{"the key is wrong", func(r *Report) {
			r.Services[0].Lists = []List{{Name: "se-4b"}, {Name: "mw-4b"}}
			r.Services[0].Fetch = Hold{now.Add(time.Hour), "back-off after a failure at 00:00: status 403: denied", 1}
		}, NotProtected, "NOT protected: no list of Safe Browsing v5 is in force", "Lists se-4b (phishing), mw-4b (malware) are not in force: their names pass. The server is not asked now (back-off after a failure at 00:00: status 403: denied). Until 2026-11-22T13:00:00Z. Correct the key, the endpoint or the lists: \"safebrowsing doctor\" says which. A changed key is tried within a minute after a start, or after api_key_file changes"},
		{"keeps no lists", func(r *Report) { r.Services[0].Lists = nil }, Protected, full, ""},
		{"no server block", func(r *Report) { r.Blocks = nil }, NotProtected, "NOT protected", "No server block has safebrowsing"},
	} {
		r := healthy()
		tc.change(&r)
		r.Judge()
		where := r.Notes
		if tc.state == Protected != (len(r.Causes) == 0) && tc.state != OwnLists {
			t.Errorf("%s: state %v with the causes %v", tc.name, r.State, r.Causes)
		}
		if tc.state != Protected && tc.state != OwnLists {
			where = []string{fmt.Sprint(r.Causes)}
		}
		testkit.Equal(t, tc.name, r.State, tc.state)
		testkit.Equal(t, tc.name, r.Headline, tc.headline)
		testkit.WantParts(t, strings.Join(where, "\n"), testkit.LocalTimes(tc.says))
	}
}

func TestListsSayWhatCannotBeUsed(t *testing.T) {
	r := healthy()
	r.Blocks[0].Own[0].Trouble, r.Blocks[0].Own[0].Nothing = "the server answered status 503", "is empty"
	text := printed(&r, (*Printer).Lists)
	testkit.WantParts(t, text, "  cannot be used: the server answered status 503\n", "  blocks nothing: it is empty\n")
}

func TestTheLongTextOfAReport(t *testing.T) {
	r := healthy()
	r.Today = Day{Checked: 4000, Blocked: 5, Threats: Threats{InTime: 3, Unconfirmed: 1, Second: 1}}
	r.Names = []Blocked{{Name: "evil.example", List: "se-4b", Threat: "phishing", N: 1, Last: now.Add(-time.Minute)}}
	r.Late = []Late{{Devices: 2, Asked: now.Add(-time.Hour), Listed: now, Threat: "phishing"}}
	r.Services[0].Budget, r.Services[0].Left = 1000, 900
	r.Blocks[0].Own[0].Updated = now.Add(-2 * time.Hour)
	r.Notes, r.Notices = []string{"A note."}, []Words{{Text: "The notice."}}
	testkit.Equal(t, "text", "\n"+printed(&r, (*Printer).Long), `
Protected by Safe Browsing v5 and own lists
  Lists    3 phishing, 0 malware (fetched 1h0m ago); 2 on your own lists
  Today    5 of 4,000 names blocked, the last 1m ago; searches left today: at least 900 of 1000
  Threats  3 confirmed in time; 1 passed because it could not be confirmed; 1 blocked on the second query
  Late     2 devices asked at 11:00 for a name that is listed as phishing since 12:00
  Blocked  evil.example (se-4b (phishing)), 1m ago
           why: safebrowsing why evil.example
           let it pass: safebrowsing allow -for 1h evil.example
  Note     A note.

Safe Browsing v5, mode local, https://sb.example, db /db
  se-4b  phishing  3 entries  fetched 1h0m ago  next fetch in 20m
  mw-4b  malware   0 entries  fetched 1h0m ago  next fetch is due
  no list is fetched before 2026-11-22 12:20:00 UTC: minimum wait of the server

own.txt blocks 2 entries, changed 2h0m ago, for the zones .

The notice.
`+NoGuarantee+"\n")
}

func TestAReportIsTheSameAfterJSON(t *testing.T) {
	r := healthy()
	r.Names, r.Hour, r.Since = []Blocked{{Name: "a.example", Last: now, First: now, N: 1}}, []Count{{"se-4b", 1}}, now
	text, err := json.Marshal(r)
	testkit.Must(t, err)
	var got Report
	testkit.Must(t, json.Unmarshal(text, &got))
	testkit.Equal(t, "text", printed(&got, (*Printer).Long), printed(&r, (*Printer).Long))
	testkit.WantParts(t, printed(&got, (*Printer).Long), "a.example")
}

// printed is what is printed of a report, without colours.
func printed(r *Report, print func(*Printer, *Report)) string {
	var b strings.Builder
	print(&Printer{W: &b, Tool: "safebrowsing"}, r)
	return b.String()
}

func TestTextIsSafeForATerminalAndColouredOnOneOnly(t *testing.T) {
	r := healthy()
	r.Names = []Blocked{{Name: "a\x1b[2J$(reboot).example", List: "se-4b", Last: now}}
	text, coloured := printed(&r, (*Printer).Short), printed(&r, func(p *Printer, r *Report) { p.Colour = true; p.Short(r) })
	testkit.WantNone(t, text, "\x1b", "allow -for", "safebrowsing why")
	testkit.WantParts(t, text, "a%1B[2J", "3 phishing, 0 malware (fetched 1h0m ago); 2 on your own lists")
	testkit.WantStart(t, coloured, "\x1b[32;1mProtected by")
	testkit.WantNone(t, coloured, "\x1b[2J")
}

// fixed is a source whose report does not change.
type fixed struct{ report Report }

func (f fixed) Report() Report { return f.report }

func (f fixed) Why(h lookup.Host) Why {
	return Why{Answers: []Answer{{Zones: ".", Verdict: VerdictBlocked, Text: h.String() + " is blocked", Note: "<b>list</b>"}}}
}

func pageOf(r Report) string {
	return request(handler(fixed{r}), "GET", "127.0.0.1", "/").Body.String()
}

func request(h http.Handler, method, host, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestThePageIsReadOnlyAndForThisMachine(t *testing.T) {
	own, err := os.Hostname()
	testkit.Must(t, err)
	h := handler(fixed{healthy()})
	for _, tc := range []struct {
		method, host, target string
		status               int
	}{
		{"GET", "127.0.0.1:8053", "/", 200},
		{"HEAD", "[::1]:8053", "/", 200},
		{"GET", "192.0.2.1", "/", 200},
		{"GET", "LOCALHOST:8053", "/?host=evil.example", 200},
		{"GET", own + ":8053", "/", 200},
		{"GET", "127.0.0.1:8053", "/status.json", 200},
		{"GET", "attacker.example:8053", "/", 421},
		{"GET", "attacker.example:8053", "/status.json", 421},
		{"POST", "127.0.0.1:8053", "/status.json", 405},
		{"GET", "127.0.0.1.attacker.example", "/", 421},
		{"GET", "localhost.attacker.example:8053", "/", 421},
		{"GET", "", "/", 421},
		{"POST", "127.0.0.1:8053", "/", 405},
		{"DELETE", "127.0.0.1:8053", "/", 405},
		{"GET", "127.0.0.1:8053", "/favicon.ico", 404},
	} {
		w := request(h, tc.method, tc.host, tc.target)
		testkit.Equal(t, tc, w.Code, tc.status)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'sha256-", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			testkit.WantStart(t, name+": "+w.Header().Get(name), name+": "+want)
		}
		testkit.Equal(t, "who may read it", w.Header().Get("Access-Control-Allow-Origin"), "")
	}
}

func TestThePageShowsAndEscapes(t *testing.T) {
	r := healthy()
	r.Named, r.Names = true, []Blocked{{Name: "<script>alert(1)</script>.example", List: "/etc/coredns/own.txt", N: 2, Last: now.Add(-3 * time.Minute)}}
	r.Hour = []Count{{"/etc/coredns/own.txt", 17}}
	const script = "javascript:alert(3)" // the server of the lists may be a stranger's
	r.Notices = []Words{{"Words of " + script, script}}
	body := request(handler(fixed{r}), "GET", "127.0.0.1", "/?host=%22%3E%3Cscript%3Ealert(2)%3C/script%3E").Body.String()
	testkit.WantParts(t, body,
		"Protected by Safe Browsing v5 and own lists", "Phishing <span class=\"soft short\">se-4b", "1h ago", "in 20m", "&lt;script&gt;alert(1)", "own.txt 17×", "3m ago", "own.txt blocks 2 entries", "<style>"+pageCSS+"</style>", `Words of <a href="#">`+script)
	testkit.WantNone(t, body, "<script", `href="javascript`, "/etc/coredns", "http-equiv", "src=", "style=")
	for host, want := range map[string]string{
		"https://www.evil.example/login?x=1": "www.evil.example is blocked", "Evil.Example.": "evil.example is blocked",
		strings.Repeat("a", 5000): "This is not a host name.",
	} {
		body := request(handler(fixed{r}), "GET", "127.0.0.1", "/?host="+strings.ReplaceAll(host, "?", "%3F")).Body.String()
		testkit.WantParts(t, body, want)
		testkit.Between(t, "bytes", len(body), 0, 20000)
		testkit.Equal(t, fmt.Sprintf("%.50s: reasons, escaped", host), strings.Contains(body, "&lt;b&gt;list"), strings.Contains(want, "is blocked"))
	}
}

func TestThePageShowsAllThatIsKnown(t *testing.T) {
	r := healthy()
	r.Since, r.Causes, r.Notes = now.Add(-time.Hour), []Cause{{"Something.", now.Add(time.Hour), "Mend it"}, {Text: "More."}}, []string{"A note."}
	r.Counted, r.LooksBack = now.Add(-time.Hour), true
	s := &r.Services[0]
	s.Lists = append(s.Lists, List{Name: "uws-4b", NotBefore: now}, List{Name: "pha-4b", InForce: true})
	s.Paid, s.Budget, s.Left, s.Spent, s.Costly = true, 1000, 990, 10, []Costly{{"dear.example", 2}}
	r.Services = append(r.Services, Service{Title: "Web Risk", Mode: "nostorage"})
	r.Blocks[0].Own = []OwnList{{Name: "/etc/a.txt", Allow: true, Entries: 1, Updated: now.Add(-2 * time.Minute), Trouble: "x"}, {Name: "b.txt", Nothing: "is empty"}}
	r.Blocks = append(r.Blocks, Block{Zones: "example.org", Monitor: true}, Block{Zones: "example.net", Paused: now.Add(time.Hour)})
	testkit.WantParts(t, pageOf(r), `<p class="soft">Since 11:00 UTC</p>`, "<li>Something. Until 13:00 UTC. Mend it.</li><li>More.</li>", "<p>A note.</p>",
		`<span class="soft">since 11:00 UTC, when CoreDNS started</span>`, "<p>Nothing in the last 24 hours.</p>", "<p>Nothing.</p>",
		`<td class="number"><span class="blocked">none</span></td><td>never</td><td>due</td>`, `<td class="number">0</td><td>unknown</td><td>due</td>`,
		"Searches left today: 990 of 1,000. Today 10 searches, 0.50 US-$ of at most 50.00. Mode local, from https://sb.example; kept in /db.",
		"dear.example: 2 searches, 0.10 US-$<br><code>sudo safebrowsing allow -for 1h dear.example</code>",
		"No lists are kept: the server is asked about each name.", "Mode nostorage, from ; in memory only.",
		`a.txt allows 1 entry<span class="soft">, changed 2m ago</span> (<span class="blocked">cannot be used</span>)<br>b.txt blocks 0 entries (<span class="blocked">it is empty</span>)`,
		`example.org</th><td>nothing: monitor</td><td>none</td>`, `example.net</th><td>nothing: paused</td>`, "It renews itself each minute")
	r.Late, r.Named = []Late{{Devices: 2, Asked: now, Listed: now, Threat: "phishing"}}, true
	r.Names = []Blocked{{Name: "evil.example", List: "se-4b", N: 1, First: now, Last: now, Report: "https://report.example/?a&b"}}
	testkit.WantParts(t, pageOf(r), "<li>2 devices asked at", "they may have given away a password", `<a class="soft" href="https://report.example/?a&amp;b">Report a mistake</a>`)
}

// There is a command to copy only if a shell takes the name for nothing else.
func TestABlockedNameHasWhyCountAndACommand(t *testing.T) {
	r := healthy()
	long := strings.Repeat("long.", 23) + "name"
	r.Named, r.Names = true, []Blocked{
		{Name: long, List: "se-4b", N: 1234, First: now.Add(-time.Hour), Last: now},
		{Name: "shop.example", Target: "evil.example", List: "mw-4b", N: 1, Last: now},
		{Name: "$(reboot).example", List: "mw-4b", N: 1, Last: now},
		{Name: "a\u202eb.example&x=1", List: "mw-4b", N: 1, Last: now},
	}
	r.Services[0].Costly = []Costly{{"`reboot`.example", 3}, {"dear.example", 2}}
	got := pageOf(r)
	testkit.WantParts(t, got,
		`<a href="/?host=`+long+`#ask" title="Why?">`+long, "<code>sudo safebrowsing allow -for 1h "+long+"</code>", "1,234×<br><span class=\"soft\">since 11:00 UTC", "an alias of evil.example",
		`href="/?host=%24%28reboot%29.example#ask"`, "%26x%3D1#ask", "<code>sudo safebrowsing allow -for 1h dear.example</code>")
	testkit.WantNone(t, got, "1h $", "1h `", "\u202e", "Asked by")
	r.Names[1].Client = "192.0.2.7" // where names are logged
	testkit.WantParts(t, pageOf(r), "Asked by", "192.0.2.7")
	r.Named = false // the Corefile does not show them
	testkit.WantNone(t, pageOf(r), "shop.example")
	for r.Named = true; len(r.Names) <= maxShown; {
		r.Names = append(r.Names, Blocked{Name: fmt.Sprintf("n%d.example", len(r.Names)), Last: now})
	}
	testkit.WantParts(t, pageOf(r), "n99.example")
	testkit.WantNone(t, pageOf(r), "n100.example")
}

// Devices that may not be protected are told where people look first, and what came from a network is escaped.
func TestDevicesThatLeftAreTold(t *testing.T) {
	r := healthy()
	shown := func() (page, short, long string) {
		return pageOf(r), printed(&r, (*Printer).Short), printed(&r, (*Printer).Long)
	}
	page, short, long := shown()
	testkit.WantNone(t, page, "use other resolvers")
	testkit.WantNone(t, short+long, "Devices")
	r.Devices = Devices{Left: 1, Also: 2, Told: []Device{
		{Client: "192.168.1.20", Resolver: "dns.google", Asked: 40, Last: now, Since: now.Add(-2 * time.Hour), Left: true},
		{Client: "<script>\u202e\x1b[2J", Resolver: "dns.quad9.net", Asked: 1, Last: now, Since: now},
	}}
	page, short, long = shown()
	const sum = "3 devices ask for public encrypted resolvers, 1 of them for nothing else: it may not be protected"
	left, also := testkit.LocalTimes("192.168.1.20 asked for dns.google 40 times today and nothing else since 2026-11-22T10:00:00Z: it may not be protected"), "asked for dns.quad9.net 1 time today, and for other names, too"
	testkit.WantParts(t, page, sum+".</p>", "<li>"+left+"</li>", "&lt;script&gt;", also)
	testkit.WantParts(t, short, "  Devices  "+sum, left)
	testkit.WantParts(t, long, "  Devices  "+sum, left, also)
	testkit.WantNone(t, short, also)
	testkit.WantNone(t, page, "<script")
	testkit.WantNone(t, page+short+long, "\u202e", "\x1b")
	testkit.Equal(t, "said", strings.Count(long, sum), 1)
	r.Devices = Devices{Also: 1}
	page, short, long = shown()
	const too = "1 device asks for public encrypted resolvers, and for other names, too"
	testkit.WantNone(t, short, "Devices")
	testkit.WantParts(t, long, "  Devices  "+too)
	testkit.WantParts(t, page, "<p>"+too+".</p>")
}

func TestDevicesInWords(t *testing.T) {
	for _, tc := range []struct {
		left, also int
		want       string
	}{
		{0, 0, "no device asks for a public encrypted resolver"},
		{1, 0, "1 device asks for public encrypted resolvers and for nothing else: it may not be protected"},
		{2, 0, "2 devices ask for public encrypted resolvers and for nothing else: they may not be protected"},
		{2, 1, "3 devices ask for public encrypted resolvers, 2 of them for nothing else: they may not be protected"},
		{0, 2, "2 devices ask for public encrypted resolvers, and for other names, too"},
	} {
		testkit.Equal(t, tc, (Devices{Left: tc.left, Also: tc.also}).InWords(), tc.want)
	}
	d := Device{Resolver: "dns.google", Last: now.Add(-time.Hour), Since: now.Add(-4 * time.Hour), Left: true}
	for got, want := range map[string]string{
		d.String():       "A device asked for dns.google, last at 2026-11-22T11:00:00Z, and nothing else since 2026-11-22T08:00:00Z: it may not be protected",
		d.BackAfter(now): "A device, which asked for dns.google only, asks for other names again, after 4h0m",
		d.Forgotten():    "A device, which asked for dns.google only, asks for nothing any more since 2026-11-22T11:00:00Z",
	} {
		testkit.Equal(t, "device", got, testkit.LocalTimes(want))
	}
}

// A network that is down has one cause, however much it stops: it is said once, and not again beside a list.
func TestOneCauseIsSaidOnce(t *testing.T) {
	r := healthy()
	why := Hold{now.Add(time.Hour), "no route to host", 1}
	r.Services[0].Fetch, r.Services[0].Search = why, why
	for i := range r.Services[0].Lists {
		r.Services[0].Lists[i].InForce = false
	}
	r.Judge()
	body := pageOf(r)
	for _, text := range []string{fmt.Sprint(r.Causes, r.Notes), body} {
		testkit.Equal(t, "times in "+text, strings.Count(text, why.Why), 1)
	}
	testkit.WantNone(t, body, "confirmed at once")
	testkit.WantParts(t, body, "Until "+clock(why.Until, now)+".")
}

func TestThePageHasTheDayAndItsLine(t *testing.T) {
	r := healthy()
	r.Today = Day{Checked: 12400, Blocked: 31}
	testkit.WantNone(t, pageOf(r), "<svg")
	r.Today.Hours[22], r.Today.Hours[23] = Pair{12000, 30}, Pair{400, 1}
	body := pageOf(r)
	testkit.WantParts(t, body,
		"<strong>31</strong> of 12,400 questions blocked", `<polyline points="10,40.0 `, " 450,2.0 470,38.7\"></polyline>",
		"12,400 questions, at most 12,000 in an hour, and 31 blocked, at most 30 in an hour", ": 30 of 12,000 questions blocked</title>", `y="48" width="17" height="24"`)
	testkit.Equal(t, "bars", strings.Count(body, `class="bar"`), 2)
}

// An answer that is being read stays, and whoever wants it can make any page stay.
func TestThePageRenewsItself(t *testing.T) {
	h := handler(fixed{healthy()})
	for target, want := range map[string]string{"/": "60", "/?host=a.example": "", "/?stay": "", "/status.json": ""} {
		w := request(h, "GET", "127.0.0.1", target)
		testkit.Equal(t, target, w.Header().Get("Refresh"), want)
		testkit.Equal(t, target+": the link that stops that", strings.Contains(w.Body.String(), `href="/?stay"`), want != "")
	}
}

func TestStatusJSONIsTheReport(t *testing.T) {
	r := healthy()
	for i := range 300 {
		r.Names = append(r.Names, Blocked{Name: fmt.Sprintf("<b>%d.example", i), Last: now, First: now})
	}
	r.Services[0].Fetch.Why = "asking with AIza" + strings.Repeat("x", 35)
	w := request(handler(fixed{r}), "GET", "127.0.0.1", "/status.json")
	var want strings.Builder
	testkit.Must(t, r.WriteJSON(&want))
	var got Report
	testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &got))
	testkit.Equal(t, "the report", w.Body.String(), want.String())
	testkit.Equal(t, "type", w.Header().Get("Content-Type"), "application/json")
	testkit.WantNone(t, want.String(), "AIzax")
	testkit.Equal(t, "names", fmt.Sprint(len(got.Names), got.Names[0].Name), "100<b>0.example")
}

func TestTimesOfThePageAreLocalAndUTC(t *testing.T) {
	defer func(old *time.Location) { time.Local = old }(time.Local)
	time.Local = time.FixedZone("CET", 3600)
	for at, want := range map[time.Time]string{
		now:                      "13:00 CET (12:00 UTC)",
		now.Add(-13 * time.Hour): "00:00 CET (23:00 UTC)",
		now.Add(-24 * time.Hour): "2026-11-21 13:00 CET (12:00 UTC)",
	} {
		testkit.Equal(t, at, clock(at, now), want)
	}
	time.Local = time.UTC
	testkit.Equal(t, "in UTC", clock(now, now), "12:00 UTC")
}

func TestAPageIsSharedAndEndsWithItsLastHolder(t *testing.T) {
	var p Pages
	address := testkit.FreeAddr(t)
	at, first, err := p.Open(address, fixed{healthy()})
	testkit.Must(t, err)
	other, second, err := p.Open(address, fixed{})
	testkit.Must(t, err)
	testkit.Equal(t, "a page that is open already", other, nil)
	first()
	first()                                                                          // counts once
	testkit.WantParts(t, testkit.Body(t, "http://"+at.String()+"/"), "Protected by") // of the first source
	_, _, err = new(Pages).Open(at.String(), fixed{})
	testkit.WantError(t, err)
	second()
	_, err = net.Dial("tcp", at.String())
	testkit.WantError(t, err)
}

type counting struct {
	fixed
	reports *atomic.Int32
}

func (c counting) Report() Report { c.reports.Add(1); return c.fixed.Report() }

func TestAPageIsMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := counting{fixed{healthy()}, new(atomic.Int32)}
		h := handler(source)
		for range 3 {
			for n := range 100 {
				testkit.WantParts(t, request(h, "GET", "127.0.0.1", "/?host="+strings.Repeat("evil.example", n%2)).Body.String(), "Protected by")
			}
			time.Sleep(time.Second)
		}
		testkit.Equal(t, "reports for 600 pages in 3 seconds", source.reports.Load(), 3)
	})
}

// Addresses of the loopback network are clients of their own here.
func TestOneClientCannotTakeAllConnectionsOfAPage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have 127.0.0.1 only")
	}
	var p Pages
	at, release, err := p.Open("127.0.0.1:0", fixed{healthy()})
	testkit.Must(t, err)
	defer release()
	from := func(address string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: from("127.0.0.3").DialContext, DisableKeepAlives: true}}
	for range 3 { // where the machine stands still for longer than ReadHeaderTimeout, nothing is known
		var first net.Conn
		for range 300 {
			conn, err := from("127.0.0.2").Dial("tcp", at.String())
			testkit.Must(t, err)
			defer conn.Close()
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n") // and no more
			if first == nil {
				first = conn
			}
		}
		response, err := client.Get("http://" + at.String() + "/")
		testkit.Must(t, err)
		response.Body.Close()
		testkit.Equal(t, "status", response.StatusCode, http.StatusOK)
		testkit.Must(t, first.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return // the page came while the slow client had all that it can have
		}
	}
	t.Error("The page comes only when the connections of a slow client have ended")
}
