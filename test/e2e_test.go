package test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const phishing = "suspected social engineering (Safe Browsing)"

// endToEnd is what must hold whichever protocol is spoken.
var endToEnd = []struct {
	name string
	run  func(t *testing.T, w *world)
}{
	{"Confirmed threats are blocked and all else passes", confirmedThreatsAreBlockedAndAllElsePasses},
	{"Collision that is not confirmed passes", collisionThatIsNotConfirmedPasses},
	{"Only threats of the configured lists block", onlyThreatsOfTheConfiguredListsBlock},
	{"Removed threat passes after the next partial update", removedThreatPassesAfterTheNextPartialUpdate},
	{"Two server blocks and three reloads make one first contact", twoServerBlocksAndThreeReloadsMakeOneFirstContact},
	{"Restart uses the lists on disk and does not ask early", restartUsesTheListsOnDiskAndDoesNotAskEarly},
	{"Failed reload leaves nothing behind", failedReloadLeavesNothingBehind},
	{"Server that is down does not keep the resolver out of service", serverThatIsDownDoesNotKeepTheResolverOutOfService},
	{"Prefixes are all that leaves", prefixesAreAllThatLeaves},
}

func TestEndToEnd(t *testing.T) {
	if !apart(t) {
		return
	}
	for _, d := range protocol.Dialects() {
		for _, test := range endToEnd {
			t.Run(d.String()+"/"+test.name, func(t *testing.T) {
				if d != protocol.Dialects()[0] {
					testkit.Long(t)
				}
				w := newWorld(t)
				w.protocol = d
				test.run(t, w)
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
	for _, name := range []string{
		"evil.example.com.", "EVIL.exAmple.COM.", "www.evil.example.com.", // listed, and below it
		"bad.example.co.uk.", "a.bad.example.co.uk.",
		"a.b.c.evil.example.com.", // six labels
		"d.e.evil.example.net.",   // five labels, listed by itself
		"x.d.e.evil.example.net.", // six labels
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

func collisionThatIsNotConfirmedPasses(t *testing.T, w *world) {
	w.publish("se-4b", "harmless.example.org/")
	w.run()
	w.wantPassed("harmless.example.org.", dns.TypeA)
	w.wantPassed("www.harmless.example.org.", dns.TypeA)
	testkit.Equal(t, "one search, the second name being answered from the cache", len(w.searches()), 1)
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
	before := w.engine()
	taken, err := net.Listen("tcp", w.host+":0")
	testkit.Must(t, err)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
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

func serverThatIsDownDoesNotKeepTheResolverOutOfService(t *testing.T, w *world) {
	w.google.Break("", 1000, protocoltest.Fault{Status: 503})
	w.start(w.corefile())
	testkit.Until(w.t, "the first contact", w.ready)
	w.wantPassed("evil.example.com.", dns.TypeA)
	w.restart(w.corefile())
	testkit.Until(w.t, "readiness, though nothing may be asked for a quarter of an hour", w.ready)
	testkit.Equal(t, "one request, then back-off", len(w.fetches()), 1)
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
