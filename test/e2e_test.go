package test

import (
	"crypto/sha256"
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
	w.threaten("evil.example.com/", "bad.example.co.uk/", "d.e.evil.example.net/")
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
	for _, name := range []string{"example.com.", "good.example.com.", "notevil.example.com.", "evil.example.net.", "example.co.uk.", "printer.local.", "router."} {
		w.wantPassed(name, dns.TypeA)
	}
	if m := w.askOver("tcp", "evil.example.com.", dns.TypeA); !isBlocked(m) {
		t.Errorf("Expected to be blocked over TCP too, got\n%v", m)
	}
}

func collisionThatIsNotConfirmedPasses(t *testing.T, w *world) {
	w.publish("se-4b", "harmless.example.org/")
	w.run()
	w.wantPassed("harmless.example.org.", dns.TypeA)
	w.wantPassed("www.harmless.example.org.", dns.TypeA)
	if n := len(w.searches()); n != 1 {
		t.Errorf("Expected one search, the second name being answered from the cache, got %d", n)
	}
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
	if n := len(w.searches()); n != searches {
		t.Error("Expected no search for a name that is in no list any more")
	}
	w.wantBlocked("worse.example.com.", dns.TypeA, w.blames("social engineering"))
	if r := w.fetches(); len(r[1].Versions) != 1 {
		t.Errorf("Expected the second request to name the version that is held, got %d versions", len(r[1].Versions))
	}
}

func twoServerBlocksAndThreeReloadsMakeOneFirstContact(t *testing.T, w *world) {
	w.threaten("evil.example.com/", "evil.example.net/")
	corefile := w.corefile() + strings.Replace(w.corefile("respond refused", "ttl 10s"), ".:0 {", "example.net:0 {", 1)
	w.start(corefile)
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	for i := range 3 {
		testkit.Must(t, w.reload(corefile))
		w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
		if m := w.ask("evil.example.net.", dns.TypeA); m.Rcode != dns.RcodeRefused {
			t.Errorf("Reload %d: Expected the other block's own answer, got\n%v", i, m)
		}
	}
	if n, want := len(w.fetches()), w.perUpdate(3); n != want {
		t.Errorf("Expected %d requests for lists, got %d", want, n)
	}
	if n := len(w.searches()); n != 2 {
		t.Errorf("Expected one search for each name, the cache being kept, got %d", n)
	}
	if e, holders := engines.Count(); e != 1 || holders != 2 {
		t.Errorf("Expected one engine for two blocks, got %d for %d", e, holders)
	}
}

func restartUsesTheListsOnDiskAndDoesNotAskEarly(t *testing.T, w *world) {
	w.threaten("evil.example.com/")
	w.run()
	w.restart(w.corefile())
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	if n, first := len(w.fetches()), w.perUpdate(3); n != first {
		t.Errorf("Expected no request before the minimum wait has passed, got %d", n-first)
	}
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
			if err := w.reload(corefile); err == nil {
				t.Fatal("Expected the reload to fail")
			}
			if e, holders := engines.Count(); e != 1 || holders != 1 || w.engine() != before {
				t.Errorf("Expected the old engine and no other, got %d engines and %d holders", e, holders)
			}
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
	if n := len(w.fetches()); n != 1 {
		t.Errorf("Expected one request, then back-off, got %d", n)
	}
}

func prefixesAreAllThatLeaves(t *testing.T, w *world) {
	w.google.SetKey("SECRETKEY")
	w.threaten("evil.example.com/")
	w.run("api_key SECRETKEY")
	for i := range 50 {
		w.wantPassed(fmt.Sprintf("host%d.example.org.", i), dns.TypeA)
	}
	w.wantBlocked("a.evil.example.com.", dns.TypeA, w.blames("social engineering"))
	searches := w.searches()
	if len(searches) != 1 || len(searches[0].Prefixes) != 1 {
		t.Fatalf("Expected one search for one prefix, got %v", searches)
	}
	want := sha256.Sum256([]byte("evil.example.com/"))
	if got := searches[0].Prefixes[0]; string(got) != string(want[:4]) {
		t.Errorf("Expected prefix %x, got %x", want[:4], got)
	}
}
