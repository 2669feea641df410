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

// The lists of the protocols that have no others.
var (
	faultyV4 = []faulty{
		{"se-4b", sbv5.ThreatType_SOCIAL_ENGINEERING, phishing},
		{"mw-4b", sbv5.ThreatType_MALWARE, "malware (Safe Browsing)"},
		{"uws-4b", sbv5.ThreatType_UNWANTED_SOFTWARE, "unwanted software (Safe Browsing)"},
		{"uwsa-4b", sbv5.ThreatType_UNWANTED_SOFTWARE, "unwanted software (Safe Browsing)"},
		{"pha-4b", sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, "potentially harmful application (Safe Browsing)"},
	}
	faultyWebRisk = []faulty{
		{"se-4b", sbv5.ThreatType_SOCIAL_ENGINEERING, "social engineering (Web Risk)"},
		{"mw-4b", sbv5.ThreatType_MALWARE, "malware (Web Risk)"},
		{"uws-4b", sbv5.ThreatType_UNWANTED_SOFTWARE, "unwanted software (Web Risk)"},
		{"se-ext-4b", extendedCoverage, "social engineering (Web Risk)"},
	}
)

// extendedCoverage stands for a threat type that Safe Browsing does not have.
const extendedCoverage = sbv5.ThreatType_THREAT_TYPE_UNSPECIFIED

// confirm has searches confirm an expression as a threat of the list.
func (f faulty) confirm(w *world, expression string) {
	if f.threat == extendedCoverage {
		w.google.AddExtendedThreat(expression)
		return
	}
	w.google.AddThreat(expression, f.threat)
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
		for name, fault := range bearable(t, protocoltest.ListFaults(), 15) {
			n++
			f := faulty{fmt.Sprintf("f%d-4b", n), sbv5.ThreatType_MALWARE, "malware (Safe Browsing)"}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				faultyWorld(t, protocol.DialectV5, f, fault, lines)
			})
		}
	})
	for d, column := range map[*protocol.Dialect]struct {
		lists  []faulty
		faults map[string]protocoltest.Fault
	}{
		protocol.DialectV4:      {faultyV4, protocoltest.ListFaultsV4()},
		protocol.DialectWebRisk: {faultyWebRisk, protocoltest.ListFaultsWebRisk()},
	} {
		t.Run(d.String(), func(t *testing.T) {
			faults := bearable(t, column.faults, 15)
			names := slices.Sorted(maps.Keys(faults))
			for i, f := range column.lists {
				t.Run(f.list, func(t *testing.T) {
					t.Parallel()
					for n := i; n < len(names); n += len(column.lists) {
						t.Run(names[n], func(t *testing.T) { faultyWorld(t, d, f, faults[names[n]], lines) })
					}
				})
			}
		})
	}
}

// bearable leaves out the faults that take minutes or gigabytes over a socket: see
// package updater. At least so many must be left.
func bearable(t *testing.T, faults map[string]protocoltest.Fault, least int) map[string]protocoltest.Fault {
	maps.DeleteFunc(faults, func(_ string, f protocoltest.Fault) bool { return f.Delay > 0 || f.EndlessBody })
	if len(faults) < least {
		t.Errorf("Expected the server to know many faults, got %d", len(faults))
	}
	return faults
}

func faultyWorld(t *testing.T, d *protocol.Dialect, f faulty, fault protocoltest.Fault, lines *logtest.Lines) {
	w := newWorld(t)
	w.protocol = d
	list := f.list
	w.google.SetMinimumWait(list, time.Second)
	w.publish(list, "evil.example.com/")
	f.confirm(w, "evil.example.com/")

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

// Web Risk answers with moments, not with durations. One that is absent, past or far
// away takes nothing away: the rest of the answer is good.
func TestOddTimesOfListsTakeNoProtectionAway(t *testing.T) {
	skipIfShort(t, "waits in real seconds")
	for name, fault := range protocoltest.OddDiffTimes() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.protocol = protocol.DialectWebRisk
			blamed := w.blames("social engineering")
			w.threaten("evil.example.com/")
			w.google.Break("update", 1000, fault)
			w.start(w.corefile())
			requests := 2 * w.perUpdate(3) // the second one says that nothing has changed
			if fault.FarNextDiff {
				requests = w.perUpdate(3)
			}
			w.updated(requests)
			w.wantBlocked("evil.example.com.", dns.TypeA, blamed)
			w.stop()
			w.google.ClientStarted()
			w.start(w.corefile())
			w.wantBlocked("evil.example.com.", dns.TypeA, blamed)
			if n := len(w.fetches()); n != requests {
				t.Errorf("Expected a wait after %d requests, got %d", requests, n)
			}
			w.stop()

			w.google.Repair()
			w.google.ClientLostState()
			w.google.SetMinimumWait("se-4b", time.Second)
			w.db = t.TempDir()
			w.start(w.corefile())
			w.updated(requests + w.perUpdate(3))
			w.google.Break("update", 1000, fault)
			w.threaten("evil.example.com/", "new.example.com/")
			w.eventually("the update", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
			w.wantBlocked("evil.example.com.", dns.TypeA, blamed)
		})
	}
}

func TestDamagedFileIsReportedSetAsideAndFetchedAgain(t *testing.T) {
	skipIfShort(t, "waits in real seconds")
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
