package test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// faulty is a list that only one test at a time has, so that log lines about it are
// that test's.
type faulty struct {
	list   string
	threat sbv5.ThreatType
	text   string
}

// faultyV4 are the lists of version 4, which has no others.
var faultyV4 = []faulty{
	{"se-4b", sbv5.ThreatType_SOCIAL_ENGINEERING, phishing},
	{"mw-4b", sbv5.ThreatType_MALWARE, "malware (Safe Browsing)"},
	{"uws-4b", sbv5.ThreatType_UNWANTED_SOFTWARE, "unwanted software (Safe Browsing)"},
	{"uwsa-4b", sbv5.ThreatType_UNWANTED_SOFTWARE, "unwanted software (Safe Browsing)"},
	{"pha-4b", sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, "potentially harmful application (Safe Browsing)"},
}

// Each fault of the server, on the first load and on a partial update: the last
// good list stays in service, the log says which list and why, and names are
// answered all the while.
func TestNoFaultOfTheServerTakesProtectionOrDNSAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	lines := logtest.Capture(t)
	t.Run("v5", func(t *testing.T) {
		n := 0
		for name, fault := range bearable(t, protocoltest.ListFaults()) {
			n++
			f := faulty{fmt.Sprintf("f%d-4b", n), sbv5.ThreatType_MALWARE, "malware (Safe Browsing)"}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				faultyWorld(t, protocol.DialectV5, f, fault, lines)
			})
		}
	})
	t.Run("v4", func(t *testing.T) {
		faults := bearable(t, protocoltest.ListFaultsV4())
		names := slices.Sorted(maps.Keys(faults))
		for i, f := range faultyV4 {
			t.Run(f.list, func(t *testing.T) {
				t.Parallel()
				for n := i; n < len(names); n += len(faultyV4) {
					t.Run(names[n], func(t *testing.T) { faultyWorld(t, protocol.DialectV4, f, faults[names[n]], lines) })
				}
			})
		}
	})
}

// bearable leaves out the faults that take minutes or gigabytes over a socket: see
// package updater.
func bearable(t *testing.T, faults map[string]protocoltest.Fault) map[string]protocoltest.Fault {
	maps.DeleteFunc(faults, func(_ string, f protocoltest.Fault) bool { return f.Delay > 0 || f.EndlessBody })
	if len(faults) < 15 {
		t.Errorf("Expected the server to know many faults, got %d", len(faults))
	}
	return faults
}

func faultyWorld(t *testing.T, version *protocol.Dialect, f faulty, fault protocoltest.Fault, lines *logtest.Lines) {
	w := newWorld(t)
	w.protocol = version
	list := f.list
	w.google.SetMinimumWait(list, time.Second)
	w.publish(list, "evil.example.com/")
	w.google.AddThreat("evil.example.com/", f.threat)

	// On the first load there is nothing yet, and names pass.
	before := len(lines.ErrorsAbout(list))
	w.google.Break("", 1000, fault)
	w.start(w.corefile("lists "+list, "cache 7"))
	w.eventually("the log line", func() bool { return len(lines.ErrorsAbout(list)) > before })
	w.eventually("readiness, however the first contact ended", w.ready)
	w.wantPassed("evil.example.com.", dns.TypeA)
	w.stop()

	// On an update the list that is held stays.
	w.google.Repair()
	w.google.ClientLostState()
	w.db = t.TempDir()
	w.start(w.corefile("lists " + list))
	w.eventually("the list", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	before = len(lines.ErrorsAbout(list))
	w.publish(list, "evil.example.com/", "new.example.com/")
	w.google.Break("update", 1000, fault)
	w.eventually("the log line", func() bool {
		w.wantBlocked("evil.example.com.", dns.TypeAAAA, f.text)
		return len(lines.ErrorsAbout(list)) > before
	})
	w.wantBlocked("evil.example.com.", dns.TypeA, f.text)
	line := lines.ErrorsAbout(list)[before]
	if !strings.Contains(line, "in force") || strings.HasSuffix(line, ": <nil>\n") {
		t.Errorf("Expected a line that says what is in force and why, got %s", line)
	}
}

func TestDamagedFileIsReportedSetAsideAndFetchedAgain(t *testing.T) {
	lines := logtest.Capture(t)
	w := newWorld(t)
	w.google.SetMinimumWait("se-4b", time.Second)
	w.threaten("evil.example.com/")
	w.start(w.corefile("lists se-4b"))
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.stop()

	damage(t, w.db+"/se-4b.list")
	w.google.ClientStarted()
	w.start(w.corefile("lists se-4b"))
	w.wantPassed("other.example.com.", dns.TypeA)
	if got := lines.About("damaged"); len(got) != 1 || !strings.Contains(got[0], "se-4b") {
		t.Errorf("Expected one line about the damaged list, got %q", got)
	}
	w.eventually("the list", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	requests := w.fetches()
	if last := requests[len(requests)-1]; len(requests) < 2 || len(requests[1].Versions) != 0 {
		t.Errorf("Expected to ask for the whole list, got %+v", last)
	}
}
