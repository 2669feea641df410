package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// running is a server that says what a test wants, and notes what it is asked to change.
type running struct {
	control.Server  // for calls of no test
	report          status.Report
	paused, changes []string
}

func (r *running) Report() status.Report { r.report.Judge(); return r.report }

func (r *running) WhyName(_ context.Context, name string, confirm bool) (status.Why, error) {
	h, ok := status.HostOf(name)
	if !ok {
		return status.Why{}, errors.New("no host")
	}
	a := status.Answer{Zones: ".", Verdict: status.VerdictPasses}
	switch {
	case strings.HasPrefix(name, "evil"):
		a.Verdict, a.List = status.VerdictBlocked, "se-4b"
	case confirm:
		a.Note = "confirmed"
	}
	a.Say(h.String())
	w := status.Why{Name: h.String(), Answers: []status.Answer{a}}
	w.Judge()
	return w, nil
}

func (r *running) Pause(_ context.Context, zone string, length time.Duration, keep bool) ([]block.Pause, error) {
	r.paused = append(r.paused, zone+" "+length.String()+map[bool]string{true: " keep"}[keep])
	if length == 0 {
		return nil, nil
	}
	return []block.Pause{{Zone: zone, Until: time.Now().Add(length), Keep: keep}}, nil
}

func (r *running) Change(_ context.Context, c block.Change) (block.Changed, error) {
	word := map[bool]string{true: "allow", false: "block"}[c.Allow]
	r.changes = append(r.changes, word+map[bool]string{true: " -remove"}[c.Remove]+" "+c.Host.String())
	if !c.Until.IsZero() {
		r.changes[len(r.changes)-1] += " for " + time.Until(c.Until).Round(time.Minute).String()
	}
	done := block.Changed{Host: c.Host.String(), Action: word, File: "own.txt", Line: 3, Changed: true, Until: c.Until}
	if c.Remove {
		done.Action, done.Removed = "remove", []string{"x"}
	}
	return done, nil
}

// serve starts a server that commands find by -db FOLDER.
func serve(t *testing.T) (r *running, folder string) {
	t.Helper()
	r, folder = new(running), t.TempDir()
	r.report = status.Report{At: time.Now(), Services: []status.Service{{Title: "Safe Browsing v5", Lists: []status.List{{Name: "se-4b", Title: "phishing", InForce: true, Entries: 6812345}}}}, Blocks: []status.Block{{Zones: "."}}}
	openDoor(t, folder, r)
	return r, folder
}

// openDoor lets commands find a server by its folder.
func openDoor(t *testing.T, folder string, r control.Server) {
	t.Helper()
	_, release, err := new(control.Doors).Open(folder, r)
	testkit.Must(t, err)
	t.Cleanup(release)
}

func TestCommandsAskTheServerThatRuns(t *testing.T) {
	r, db := serve(t)
	for _, tc := range []struct {
		args   string
		status int
		out    string
	}{
		{"status", 0, "Protected by Safe Browsing v5\n  Lists    6,812,345 phishing\n"},
		{"lists", 0, "phishing"},
		{"blocked", 0, "No name was blocked in the last hour.\n"},
		{"why evil.example fine.example", 1, "evil.example is blocked\n  List: se-4b (phishing)\nfine.example passes\n"},
		{"check fine.example", 0, "fine.example passes\n"},
		{"why -confirm fine.example", 0, "confirmed"},
		{"why https:// fine.example b.example:443", 2, "fine.example passes\nsafebrowsing: not a host name or a URL: \"https://\", \"b.example:443\"\n"},
		{"why https://fine.example/" + strings.Repeat("x", 20_000), 0, "fine.example passes\n"},
		{"why", 2, "why takes names"},
		{"status -json", 0, `"state":"protected"`},
		{"pause 10m", 0, "Paused until TIME, or until CoreDNS is restarted: all server blocks\n"},
		{"pause -keep -block example.org 2d", 0, "Paused until TIME, also if CoreDNS is restarted: the server blocks for example.org\n"},
		{"pause off", 0, "Nothing is paused.\n"},
		{"pause", 0, "Nothing is paused.\n"},
		{"resume", 0, "Nothing is paused.\n"},
		{"pause soon", 2, `"soon" is not a duration such as 30m, 2h or 7d`},
		{"pause 8d", 2, `"8d" is more than 7 days`},
		{"allow -for 1h x.example", 0, "x.example: allowed until TIME, with all names below it, by own.txt, line 3\n"},
		{"allow -remove x.example", 0, "x.example: removed from own.txt (1 line)\n"},
		{"block x.example y.example", 0, "y.example: blocked, with all names below it, by own.txt, line 3\n"},
		{"unblock x.example", 0, "x.example: removed from own.txt (1 line)\n"},
		{"allow -for 1x x.example", 2, "is not a duration"},
		{"allow co.uk", 2, "co.uk is a public suffix"}, {"allow np", 2, "np is a public suffix"},
		{"block -for 1h x.example", 2, "flag provided but not defined: -for"},
	} {
		words := strings.Fields(tc.args)
		s := run(t, append([]string{words[0], "-db", db}, words[1:]...)...).want(tc.status)
		testkit.WantParts(t, wordedTimes(s.out+s.errOut), tc.out)
	}
	expect(t, "pauses", strings.Join(r.paused, ", "), "all 10m0s, example.org 48h0m0s keep, all 0s, all 0s")
	expect(t, "changes", strings.Join(r.changes, ", "), "allow x.example for 1h0m0s, allow -remove x.example, block x.example, block y.example, block -remove x.example")
}

// The state decides, and the five lines are there without a word or a flag.
func TestTheExitStatusIsGoodNewsOnlyIfProtected(t *testing.T) {
	r, db := serve(t)
	t.Setenv("RUNTIME_DIRECTORY", db)
	first := func(status int, want string) {
		t.Helper()
		line, _, _ := strings.Cut(run(t).want(status).quiet().out, "\n")
		expect(t, "the first line", line, want)
	}
	first(0, "Protected by Safe Browsing v5")
	r.report.Services[0].Lists[0].InForce = false
	first(1, "NOT protected: no list of Safe Browsing v5 is in force")
	r.report.Services, r.report.Blocks = nil, []status.Block{{Zones: ".", Service: -1, Own: []status.OwnList{{Name: "many.txt", Entries: 5000}}}}
	first(1, "Your own lists only (5,000 names): Safe Browsing is off")
}

func TestWithoutAServerTheCommandsSayThatCoreDNSDoesNotRun(t *testing.T) {
	for _, args := range [][]string{{}, {"status"}, {"why", "x.example"}, {"lists"}, {"blocked"}, {"pause", "10m"}, {"resume"}, {"unblock", "x.example"}} {
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		run(t, args...).want(1, "safebrowsing: CoreDNS does not run: ").mute()
	}
}

// The server of a Corefile is found by the folder of its lists, and no other one answers for it.
func TestTheServerOfACorefileIsFound(t *testing.T) {
	w := newWorld(t)
	_, other := serve(t)
	t.Setenv("RUNTIME_DIRECTORY", other)
	corefile := w.corefile(t, usual)
	run(t, "status", "-corefile", corefile).want(1, "CoreDNS does not run", w.dir)
	t.Chdir(filepath.Dir(corefile))
	run(t, "status", "-corefile", filepath.Base(corefile)).want(1, "CoreDNS does not run", w.dir)
	openDoor(t, w.dir, &running{})
	run(t, "status", "-corefile", corefile).want(1, "No server block has safebrowsing")
	run(t, "status", "-db", w.dir).want(1, "No server block has safebrowsing")
	write(t, "Corefile", ". {\n safebrowsing {\n  wrong\n }\n}\n") // after a reload that failed
	run(t, "status", "-corefile", "Corefile").want(2, "the Corefile, which says where the control socket is, cannot be read: Corefile:3", "-db").mute()
}

// The door of a package is in another folder than its lists. Beside a package another CoreDNS may run with its Corefile in a
// usual place: who names that means its server.
func TestWhichServerACorefileMeans(t *testing.T) {
	dir := t.TempDir()
	doors := func(db, corefile string, given bool) []string {
		path := testkit.Write(t, dir, "copy", ". {\n safebrowsing {\n  endpoint http://127.0.0.1:1\n  db "+db+"\n }\n}\n")
		blocks, err := protectedBlocks(path)
		testkit.Must(t, err)
		return doorsFor(cmp.Or(corefile, path), given, blocks)
	}
	const ofPackage = "/var/lib/coredns-safebrowsing"
	expect(t, "a copy", doors(ofPackage, "", true), block.Beside(ofPackage))
	expect(t, "folders", len(block.Beside(ofPackage)), 2)
	expect(t, "given", doors(dir, "/etc/coredns/Corefile", true), append([]string{dir}, block.Folders()...))
	expect(t, "found", doors(dir, "/etc/coredns/Corefile", false), append(block.Folders(), dir))
}

// A running server edits its own lists: the command line leaves the files of the Corefile alone.
func TestAllowAsksTheServerThatRuns(t *testing.T) {
	dir, r := ownWorld(t, "endpoint http://127.0.0.1:1\n  allow allow.txt\n  db db"), new(running)
	openDoor(t, filepath.Join(dir, "db"), r)
	before := read(t, "allow.txt")
	run(t, "allow", "x.example").want(0, "by own.txt, line 3")
	expect(t, "the file", read(t, "allow.txt"), before)
	expect(t, "changes", len(r.changes), 1)
}

func TestValidateSaysWhatCanBeKnownBeforeAStart(t *testing.T) {
	w := newWorld(t)
	port := testkit.FreePort(t)
	good := w.corefile(t, ".:"+port+" {\n bind 127.0.0.1\n safebrowsing {\n  api_key K\n  endpoint ENDPOINT\n  db DB\n  block OWN(a.example)\n }\n forward . 192.0.2.53 tls://192.0.2.54 {\n  max_fails 3\n }\n forward corp.example 192.0.2.55\n}\n")
	run(t, "validate", good).want(0, "ok       folder", "ok       memory", "\n0 problems, 0 warnings\n",
		"ok       upstream  what passes is asked of 192.0.2.53, tls://192.0.2.54 for .; 192.0.2.55 for corp.example\n").
		quiet().not("running", "in force", "server  ", "budget")
	w.wantRequests(t, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	testkit.Must(t, err)
	defer l.Close()
	run(t, "validate", "-corefile", good).want(0, "warning  port      127.0.0.1:"+port+" is in use: by CoreDNS if it runs, else by another program\n", "0 problems, 1 warning\n")
	bad := w.corefile(t, ". {\n safebrowsing {\n  erors\n }\n}\n")
	run(t, "validate", bad).want(1, "problem  corefile  "+bad+":3")
	run(t, "validate", filepath.Dir(good)).want(1, "is a directory") // and no empty Corefile
	t.Chdir(filepath.Dir(good))                                      // Corefile in this folder
	run(t, "validate").want(0, "1 of 1 server block has safebrowsing")
}

func TestTheCredentialBesideACorefileIsFound(t *testing.T) {
	w := newWorld(t)
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	corefile := w.corefile(t, usual)
	w.SetKey("SECRET")
	write(t, filepath.Join(filepath.Dir(corefile), "safebrowsing.key"), "SECRET\n")
	run(t, "validate", corefile).want(0, "ok       key       present").quiet()
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	run(t, "update", "-now", "-corefile", corefile).want(0).quiet()
}

func TestDoctorAsksTheServerThatRuns(t *testing.T) {
	w := newWorld(t)
	begun := time.Now().Add(-time.Hour)
	r := &running{report: status.Report{At: time.Now(), Since: begun, Services: []status.Service{{Title: "Safe Browsing v5"}}, Blocks: []status.Block{{Zones: "."}}}}
	openDoor(t, w.dir, r)
	corefile := w.corefile(t, usual)
	run(t, "doctor", "-corefile", corefile).want(0, "ok       running   Protected by Safe Browsing v5, since "+say.Time(begun)+"\n").not("in force")
	r.report.Blocks[0].Monitor = true
	run(t, "doctor", "-corefile", corefile).want(1, "problem  running   NOT protected: monitor only logs, since ", "→ Remove monitor from the Corefile to block")
	r.report.Services, r.report.Blocks = nil, []status.Block{{Zones: ".", Service: -1, Own: []status.OwnList{{Name: "many.txt", Entries: 5000}}}}
	run(t, "doctor", "-corefile", corefile).want(0, "warning  running   Your own lists only (5,000 names): Safe Browsing is off, since ", "→ see the line about the key")
}
