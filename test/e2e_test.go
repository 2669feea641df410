package test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	_ "github.com/coredns/coredns/plugin/health"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const phishing = "suspected social engineering (Safe Browsing)"

// endToEnd is what must hold whichever protocol is spoken.
var endToEnd = map[string]func(*testing.T, *world){
	"Confirmed threats are blocked and all else passes":          confirmedThreatsAreBlockedAndAllElsePasses,
	"Only threats of the configured lists block":                 onlyThreatsOfTheConfiguredListsBlock,
	"Removed threat passes after the next partial update":        removedThreatPassesAfterTheNextPartialUpdate,
	"Two server blocks and three reloads make one first contact": twoServerBlocksAndThreeReloadsMakeOneFirstContact,
	"Restart uses the lists on disk and does not ask early":      restartUsesTheListsOnDiskAndDoesNotAskEarly,
	"Failed reload leaves nothing behind":                        failedReloadLeavesNothingBehind,
	"Prefixes are all that leaves":                               prefixesAreAllThatLeaves,
}

func TestEndToEnd(t *testing.T) {
	if !apart(t) {
		return
	}
	for _, d := range protocol.Dialects() {
		for name, run := range endToEnd {
			t.Run(d.String()+"/"+name, func(t *testing.T) {
				if d != protocol.Dialects()[0] {
					testkit.Long(t)
				}
				w := newWorld(t)
				w.protocol = d
				run(t, w)
			})
		}
	}
}

func confirmedThreatsAreBlockedAndAllElsePasses(t *testing.T, w *world) {
	w.threaten("evil.example.com/", "bad.example.co.uk/", "d.e.evil.example.net/", "co.uk/")
	// Two more are no threats. Names that match by them, too, need two searches of Web Risk: each takes one prefix.
	w.publish("se-4b", "evil.example.com/", "bad.example.co.uk/", "d.e.evil.example.net/", "co.uk/",
		"www.evil.example.com/", "evil.example.net/")
	w.run()
	for _, name := range []string{ // listed, below it, of six labels, of five labels and listed by itself, and of six
		"evil.example.com.", "EVIL.exAmple.COM.", "www.evil.example.com.", "bad.example.co.uk.", "a.bad.example.co.uk.",
		"a.b.c.evil.example.com.", "d.e.evil.example.net.", "x.d.e.evil.example.net.",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeANY} {
			w.wantBlocked(name, qtype, w.blames("social engineering"))
		}
		w.wantPassed(name, dns.TypeTXT)
		w.wantPassed(name, dns.TypeMX)
	}
	for _, name := range []string{"example.com.", "good.example.com.", "notevil.example.com.", "evil.example.net.", "printer.local.", "router."} {
		w.wantPassed(name, dns.TypeA)
	}
	if w.protocol == protocol.DialectV5 {
		w.wantPassed("example.co.uk.", dns.TypeA)
	} else { // their rule knows no public suffixes: whoever owns them
		w.wantBlocked("example.co.uk.", dns.TypeA, w.blames("social engineering"))
	}
	testkit.Equal(t, "blocked over TCP", isBlocked(w.askOver("tcp", "evil.example.com.", dns.TypeA)), true)
}

func onlyThreatsOfTheConfiguredListsBlock(t *testing.T, w *world) {
	w.publish("se-4b", "other.example.org/", "both.example.org/")
	w.google.AddThreat("other.example.org/", sbv5.ThreatType_MALWARE)
	w.google.AddThreat("both.example.org/", sbv5.ThreatType_MALWARE)
	w.google.AddThreat("both.example.org/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.run("lists se-4b")
	w.wantPassed("other.example.org.", dns.TypeA)
	w.wantBlocked("both.example.org.", dns.TypeA, w.blames("social engineering"))
}

func removedThreatPassesAfterTheNextPartialUpdate(t *testing.T, w *world) {
	w.google.SetMinimumWait("se-4b", time.Second)
	w.google.SetCacheDuration(time.Millisecond)
	w.threaten("evil.example.com/", "worse.example.com/")
	w.run("lists se-4b")
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	w.google.RemoveThreat("evil.example.com/")
	w.publish("se-4b", "worse.example.com/", "new.example.com/")
	w.google.AddThreat("new.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	testkit.Until(w.t, "the partial update", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
	searches := len(w.searches())
	w.wantPassed("evil.example.com.", dns.TypeA)
	testkit.Equal(t, "no search for a name that is in no list any more", len(w.searches()), searches)
	w.wantBlocked("worse.example.com.", dns.TypeA, w.blames("social engineering"))
	testkit.Equal(t, "versions in the second request: the one that is held", len(w.fetches()[1].Versions), 1)
}

func twoServerBlocksAndThreeReloadsMakeOneFirstContact(t *testing.T, w *world) {
	w.threaten("evil.example.com/", "evil.example.net/")
	corefile := w.corefile() + strings.Replace(w.corefile("respond refused", "ttl 10s"), ".:0 {", "example.net:0 {", 1)
	w.serve(corefile)
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	for range 3 {
		testkit.Must(t, w.reload(corefile))
		w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
		testkit.Equal(t, "the other block's own answer", w.ask("evil.example.net.", dns.TypeA).Rcode, dns.RcodeRefused)
	}
	testkit.Equal(t, "requests for lists", len(w.fetches()), w.perUpdate(3))
	testkit.Equal(t, "one search for each name, the cache being kept", len(w.searches()), 2)
	wantEngines(t, 1, 2)
}

func restartUsesTheListsOnDiskAndDoesNotAskEarly(t *testing.T, w *world) {
	w.threaten("evil.example.com/")
	w.run()
	w.restart(w.corefile())
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	testkit.Equal(t, "requests: none before the minimum wait has passed", len(w.fetches()), w.perUpdate(3))
	searches := len(w.searches())
	firstContact(t, time.Hour)
	w.restart(w.corefile())
	if w.protocol == protocol.DialectV5 {
		w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
		return
	}
	w.wantPassed("evil.example.com.", dns.TypeA) // their rules have the random delay after a start for searches, too
	testkit.Equal(t, "no search before the first contact", len(w.searches()), searches)
}

func failedReloadLeavesNothingBehind(t *testing.T, w *world) {
	w.threaten("evil.example.com/")
	w.run()
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering")) // by a search, whose connection is kept
	before, port := w.engine(), w.takenPort()
	goroutines := runtime.NumGoroutine()
	for name, corefile := range map[string]string{
		"refused by the parser":             w.corefile("nonsense"),
		"refused by a later plugin":         strings.Replace(w.corefile("cache 10"), "forward . ", "forward . nonsense ", 1),
		"address in use, other settings":    strings.Replace(w.corefile("cache 10"), ".:0", ".:"+port, 1),
		"address in use, the same settings": strings.Replace(w.corefile(), ".:0", ".:"+port, 1),
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WantError(t, w.reload(corefile))
			wantEngines(t, 1, 1)
			testkit.Equal(t, "the old engine", w.engine() == before, true)
			w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
		})
	}
	testkit.Until(w.t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
}

func prefixesAreAllThatLeaves(t *testing.T, w *world) {
	w.google.SetKey("SECRETKEY")
	w.threaten("evil.example.com/")
	w.run("api_key SECRETKEY")
	for i := range 50 {
		w.wantPassed(fmt.Sprintf("host%d.example.org.", i), dns.TypeA)
	}
	w.wantBlocked("a.evil.example.com.", dns.TypeA, w.blames("social engineering"))
	w.wantOneSearch(prefixesOf("evil.example.com/")[0])
}

// Without a cache behind, the next plugin is forward, which changes the ID of its query for as long as upstream takes.
func TestBlockedAnswerHasTheIDOfItsQuery(t *testing.T) {
	w := newWorld(t)
	w.upstream = startUpstream(t, 300*time.Millisecond)
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Delay: 50 * time.Millisecond})
	w.serve(w.uncached())
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing) // the client refuses another ID
}

// CoreDNS tells the old instance that the restart has failed also when the new one serves already.
func TestShutdownOfAnotherPluginThatFailsDoesNotEndTheEngine(t *testing.T) {
	for name, settings := range map[string]string{"the same engine": "ttl 50s", "another engine": "cache 77"} {
		t.Run(name, func(t *testing.T) {
			w := threatened(t, "evil.example.com/")
			w.serve(strings.Replace(w.corefile(), "\tcache\n", "\tfailing\n\tcache\n", 1))
			w.google.ClientStarted()
			testkit.WantError(t, w.reload(w.corefile(settings)), "this plugin cannot be shut down")
			w.takeOver()
			wantEngines(t, 1, 1)
			w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
		})
	}
}

// takenPort returns a port at which somebody else listens until the test ends.
func (w *world) takenPort() string {
	w.t.Helper()
	taken, err := net.Listen("tcp", w.host+":0")
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	return port
}

// failReload reloads a Corefile into an address that is taken.
func (w *world) failReload(corefile string) {
	w.t.Helper()
	testkit.WantError(w.t, w.reload(strings.Replace(corefile, ".:0", ".:"+w.takenPort(), 1)))
}

func TestOrphanOfAFailedReloadIsDropped(t *testing.T) {
	w := threatened(t, "evil.example.com/")
	w.start(".:0 {\n\tbind " + w.host + "\n\tforward . " + w.upstream + "\n}\n") // without our plugin
	w.failReload(w.corefile())
	// Nobody tells our plugin, but the next engine finds it out.
	w.google.ClientStarted()
	testkit.Must(t, w.reload(w.corefile("cache 77")))
	wantEngines(t, 1, 1)
}

// While health keeps a server that ends in service, it protects as before: also after a reload that failed.
func TestProtectionLastsAsLongAsTheServer(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	for name, failedReload := range map[string]bool{"without a reload": false, "after a failed reload": true} {
		t.Run(name, func(t *testing.T) {
			lines := testkit.Capture(t)
			w := threatened(t, "evil.example.com/")
			corefile := strings.Replace(w.corefile("unsure servfail"), "errors", "errors\n\thealth 127.0.0.1:0 {\n\t\tlameduck 6s\n\t}", 1)
			w.serve(corefile)
			if failedReload {
				testkit.WantError(t, w.reload(strings.Replace(corefile, "forward", "no-such-plugin", 1)))
			}
			address, done := w.address("udp"), make(chan struct{})
			go func() { defer close(done); w.stop() }()
			testkit.Until(w.t, "the lameduck", func() bool { return len(lines.About("lameduck")) > 0 })
			answer, _, err := (&dns.Client{Timeout: patience}).Exchange(query("evil.example.com.", dns.TypeA), address)
			if err != nil || answer.Rcode != dns.RcodeNameError {
				t.Errorf("Expected to be blocked while the server is in lameduck, got %v\n%v", err, answer)
			}
			<-done
		})
	}
}

// A resolver is not ready before the first contact has ended, and ready then, though it failed.
func TestReadyWhenTheFirstContactHasEnded(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for name, status := range map[string]int{"with lists": 0, "with a failure": 503} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.google.Break("update", 1, protocoltest.Fault{Delay: 2 * time.Second, Status: status})
			address := testkit.FreeAddress(t, w.host)
			w.start(strings.Replace(w.corefile(), "errors", "errors\n\tready "+address, 1))
			testkit.Until(w.t, "the request", func() bool { return len(w.fetches()) > 0 })
			response, err := http.Get("http://" + address + "/ready")
			testkit.Must(t, err)
			response.Body.Close()
			if got := response.StatusCode; got != http.StatusServiceUnavailable && w.fetches()[0].Answered.IsZero() {
				t.Errorf("Expected not to be ready while the first contact lasts, got %d", got)
			}
			testkit.WantOK(t, "http://"+address+"/ready")
			if r := w.fetches(); len(r) != 1 || r[0].Answered.IsZero() {
				t.Errorf("Expected readiness after the first answer, got %+v", r)
			}
		})
	}
}

// backedOff waits until the engine knows that a request for lists has failed, and that none may follow for many minutes.
func (w *world) backedOff() {
	w.t.Helper()
	testkit.Until(w.t, "the back-off", func() bool {
		hold := w.engine().Schedule.FetchHold([]string{"se-4b"})
		return hold.Failures > 0 && strings.Contains(hold.Cause, "503") && hold.Active(time.Now().Add(10*time.Minute))
	})
}

// A reload that fails leaves no trace for the next one to follow.
func TestReloadAfterAFailedOneFollowsTheEngineThatWentOn(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	w.db = "off"
	w.google.SetMinimumWait("se-4b", time.Second)
	w.threaten("evil.example.com/")
	w.run("lists se-4b")
	w.failReload(w.corefile("lists se-4b", "cache 77"))
	w.google.Break("update", 1000, protocoltest.Fault{Status: 503}) // the engine that continues backs off
	w.backedOff()
	n := len(w.google.Requests("update"))
	w.google.ClientStarted()
	testkit.Must(t, w.reload(w.corefile("lists se-4b", "cache 78")))
	w.backedOff()
	testkit.Equal(t, "no request during the back-off", len(w.google.Requests("update")), n)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
}

// What people have written by the tool is in db. Another folder does not have it, and they learn that.
func TestAReloadSaysWhatIsLeftInAnotherDB(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	before, after := w.db, t.TempDir()
	testkit.Must(t, os.MkdirAll(before, 0o755))
	writeFile(t, before, "block.txt", "blocked.example\n")
	writeFile(t, before, "allow.txt", "# nothing\n")
	w.run()
	const words = "Not in force since this reload"
	testkit.Must(t, w.reload(w.corefile("ttl 50s")))
	testkit.Equal(t, "the same db", lines.About(words), nil)
	w.db = after
	testkit.Must(t, w.reload(w.corefile("ttl 50s")))
	testkit.WantParts(t, lines.Only(t, words), filepath.Join(before, "block.txt"))
	testkit.WantNone(t, lines.Only(t, words), "allow.txt", "paused")
}

// CoreDNS does not end connections over QUIC when it reloads: the server of before answers on.
func TestAConnectionThatOutlivesAReloadHasTheNewRules(t *testing.T) {
	w := newWorld(t)
	list := "block " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n")
	ask := w.overQUIC()
	want := func(name string, blocked bool) {
		t.Helper()
		if m, err := ask(name); err != nil || isBlocked(m) != blocked || !blocked && len(m.Answer) != 1 {
			t.Errorf("%s: Expected blocked: %v, got %v\n%v", name, blocked, err, m)
		}
	}
	more := "" // a key
	reload := func(properties ...string) {
		t.Helper()
		caddyMu.Lock()
		defer caddyMu.Unlock()
		instance, err := w.instance.Restart(input(more + w.quicOnly(w.elsewhere, properties...)))
		testkit.Must(t, err)
		w.instance = instance
	}
	want("blocked.example.", false)
	for _, properties := range [][]string{{list}, {list, "cache 77"}} {
		reload(properties...)
		want("blocked.example.", true)
		want("clean.example.org.", false)
	}
	w.failReload(w.quicOnly(w.elsewhere) + w.corefile())
	want("blocked.example.", true)
	reload()
	want("blocked.example.", false)
	_, port, _ := net.SplitHostPort(testkit.FreeAddress(t, w.host))
	more = "tls://.:" + port + " "
	reload(list)
	want("blocked.example.", true)
	reload()
	want("blocked.example.", false)
}
