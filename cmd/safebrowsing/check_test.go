package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestCheckAgainstAFolder(t *testing.T) {
	w := filled(t)
	status, out, errOut := invoke(t, "check", "-db", w.dir, "safe.example", "www.evil.example", "https://u:p@mal.example:8443/x/y?z", "host.local", "a b\x1b/")
	if status != 1 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	expect(t, "text", out, `safe.example: safe
    note        no threat list has it
www.evil.example: unsure
    warning     suspected, not confirmed (Safe Browsing)
    expression  evil.example/
    list        se-4b
    decided by  list
    note        suspected: a query would have it confirmed by the server; -confirm does so now
https://u:p@mal.example:8443/x/y?z: unsure
    warning     suspected, not confirmed (Safe Browsing)
    expression  mal.example/
    list        mw-4b
    decided by  list
    note        checked by its host: DNS does not see /x/y?z
    note        suspected: a query would have it confirmed by the server; -confirm does so now
host.local: safe
    note        never looked up in Safe Browsing's lists: the name is not public
a b%1B/: safe
    note        never looked up in Safe Browsing's lists: the name is not public
`)
	if n := len(w.Requests("search")); n != 0 {
		t.Errorf("%d searches without -confirm", n)
	}
	if status, _, _ := invoke(t, "check", "-db", w.dir, "safe.example"); status != 0 {
		t.Errorf("a safe name: status %d", status)
	}
}

func TestCheckConfirms(t *testing.T) {
	w := filled(t)
	status, out, errOut := invoke(t, "check", "-json", "-confirm", "-db", w.dir, "safe.example", "www.evil.example", "harmless.example", "")
	if status != 1 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	expect(t, "JSON", out, `{"input":"safe.example","verdict":"safe","threat":"","warning":"","list":"","expression":"","decided_by":"list","error":"","line":"","path":"","note":"no threat list has it"}
{"input":"www.evil.example","verdict":"unsafe","threat":"social engineering","warning":"suspected social engineering (Safe Browsing)","list":"se-4b","expression":"evil.example/","decided_by":"server","error":"","line":"","path":"","note":""}
{"input":"harmless.example","verdict":"safe","threat":"","warning":"","list":"","expression":"","decided_by":"server","error":"","line":"","path":"","note":""}
{"input":"","verdict":"","threat":"","warning":"","list":"","expression":"","decided_by":"","error":"no host","line":"","path":"","note":""}
`)
	if n := len(w.Requests("search")); n != 2 {
		t.Errorf("%d searches, want one for each suspected name", n)
	}
}

func TestAConfirmationThatFails(t *testing.T) {
	w := filled(t)
	w.Break("search", 1, protocoltest.Fault{Status: http.StatusServiceUnavailable})
	status, out, _ := invoke(t, "check", "-json", "-confirm", "-db", w.dir, "evil.example")
	got := decode[checked](t, out)[0]
	if status != 1 || got.Verdict != "unsure" || got.DecidedBy != "error" || !strings.Contains(string(got.Error), "503") {
		t.Errorf("status %d, %+v", status, got)
	}
}

func TestTheKeyOfTheEnvironmentConfirms(t *testing.T) {
	w := filled(t)
	w.SetKey("OWN")
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n")
	t.Setenv(config.KeyVariable, "OWN")
	for _, from := range [][]string{{"-db", w.dir}, {"-corefile", corefile}} {
		w.ClientStarted()
		status, out, _ := invoke(t, append(append([]string{"check", "-json", "-confirm"}, from...), "evil.example")...)
		if got := decode[checked](t, out)[0]; status != 1 || got.Verdict != "unsafe" {
			t.Errorf("%s: status %d, %+v", from, status, got)
		}
		w.ClientLostState()
	}
}

func TestOwnListsAreNamedByTheirLines(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, `. {
	root HERE
	safebrowsing {
		endpoint ENDPOINT
		db DB
		block block.txt
		allow allow.txt
		allow good.example
	}
}
`)
	dir := filepath.Dir(corefile)
	write(t, filepath.Join(dir, "block.txt"), "\uFEFF# mine\n\nBad.Example # since 2020\nother.example\n")
	write(t, filepath.Join(dir, "allow.txt"), "evil.example\n")
	status, out, errOut := invoke(t, "check", "-corefile", corefile, "bad.example", "a.evil.example", "x.good.example")
	if status != 1 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	// The plugin decides whether a decision names a list by its name or by its path.
	byName := strings.NewReplacer("list        DIR/", "list        ", `"list":"DIR/`, `"list":"`)
	expect(t, "text", byName.Replace(w.plain(out, dir)), `bad.example: unsafe
    expression  bad.example/
    list        block.txt
    line        DIR/block.txt:3: Bad.Example # since 2020
    decided by  block
a.evil.example: safe
    list        allow.txt
    line        DIR/allow.txt:1: evil.example
    decided by  allow
x.good.example: safe
    list        Corefile
    line        DIR/Corefile:8: good.example
    decided by  allow
`)
	_, out, _ = invoke(t, "check", "-json", "-corefile", corefile, "bad.example")
	expect(t, "JSON", byName.Replace(w.plain(out, dir)), `{"input":"bad.example","verdict":"unsafe","threat":"","warning":"","list":"block.txt","expression":"bad.example/","decided_by":"block","error":"","line":"DIR/block.txt:3: Bad.Example # since 2020","path":"","note":""}`+"\n")
}

func TestTheServerBlockThatAnswersDecides(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, `. {
	safebrowsing {
		block OWN(a.example a.inner.example a.com a.bare.com)
		except except.com
	}
}
EXAMPLE {
	safebrowsing {
		block OWN(b.example b.inner.example)
	}
}
bare.com {
	whoami
}
inner.example:1053 tls://bare.example {
	whoami
}
10.0.0.0/8 {
	whoami
}
`)
	for name, want := range map[string]string{
		"a.com": "unsafe", "www.a.com": "unsafe", "b.com": "safe", "x.except.com": "safe",
		"a.example": "safe", "b.example": "unsafe", "b.inner.example": "unsafe", "a.bare.com": "safe", "bare.com.": "safe",
	} {
		_, out, errOut := invoke(t, "check", "-json", "-corefile", corefile, name)
		if got := decode[checked](t, out)[0]; got.Verdict != want || errOut != "" {
			t.Errorf("%s: %+v %s, want %s", name, got, errOut, want)
		}
	}
	status, out, _ := invoke(t, "check", "-corefile", corefile, "a.bare.com", "x.except.com", "a.example", "1.0.0.10.in-addr.arpa")
	if status != 0 {
		t.Errorf("status %d", status)
	}
	expect(t, "text", w.plain(out, filepath.Dir(corefile)), `a.bare.com: safe
    note        not checked: the server block that answers for it does not have safebrowsing
x.except.com: safe
    zones       .
    block       1, DIR/Corefile:2
    note        not checked: it is in no zone of this server block, or in one of its exceptions
a.example: safe
    zones       example.
    block       2, DIR/Corefile:8
    note        only your own lists are in force
1.0.0.10.in-addr.arpa: safe
    note        not checked: the server block that answers for it does not have safebrowsing
`)
}

func TestMissingListsAreSaid(t *testing.T) {
	w := newWorld(t)
	for properties, want := range map[string]string{
		"db DB":  "no list has been fetched yet: stat DB: no such file or directory\n",
		"db off": "CoreDNS keeps its lists in memory only (db off), so they cannot be read here",
	} {
		corefile := w.corefile(t, "example {\n safebrowsing {\n  endpoint ENDPOINT\n  "+properties+"\n }\n}\ncom {\n safebrowsing {\n  endpoint ENDPOINT\n  "+properties+"\n }\n}\n")
		status, out, errOut := invoke(t, "check", "-json", "-corefile", corefile, "a.example")
		got := decode[checked](t, out)[0]
		if status != 1 || got.Verdict != "safe" || got.Note != "no lists are in force" || !strings.Contains(w.plain(errOut), want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: status %d, %s%s", properties, status, out, errOut)
		}
	}
	if status, _, errOut := invoke(t, "check", "-corefile", w.corefile(t, ". {\n safebrowsing {\n endpoint ENDPOINT\n mode nostorage\n }\n}\n"), "a.example"); status != 1 || errOut != "" {
		t.Errorf("in a mode without lists: status %d, %s, want 1 for an unsure name", status, errOut)
	}
	w = filled(t)
	write(t, filepath.Join(w.dir, "se-4b.list"), "no list")
	status, out, errOut := invoke(t, "check", "-db", w.dir, "evil.example", "mal.example")
	if status != 1 || !strings.Contains(errOut, "loading list se-4b: damaged file") || !strings.Contains(out, "evil.example: safe\n    note        no threat list has it, but not all lists are here\n") || !strings.Contains(out, "mal.example: unsure") {
		t.Errorf("a damaged list: status %d, %s%s", status, out, errOut)
	}
}

func TestTheDefaultFolder(t *testing.T) {
	w := filled(t)
	t.Setenv("STATE_DIRECTORY", w.dir+":/other")
	if status, out, errOut := invoke(t, "check", "evil.example"); status != 1 || !strings.Contains(out, "unsure") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	t.Setenv("STATE_DIRECTORY", "")
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	dir, err := config.DefaultFolder()
	if err != nil || !strings.HasPrefix(dir, cache) || filepath.Base(dir) != "coredns-safebrowsing" {
		t.Errorf("got %s, %v", dir, err)
	}
}

func TestCheckChangesNothing(t *testing.T) {
	w := filled(t)
	look := func() string {
		all, err := os.ReadDir(w.dir)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range all {
			info, _ := f.Info()
			fmt.Fprintln(&b, f.Name(), info.Size(), info.ModTime())
		}
		return b.String()
	}
	before := look()
	invoke(t, "check", "-confirm", "-db", w.dir, "evil.example", "a.example")
	invoke(t, "lists", "-db", w.dir)
	invoke(t, "doctor", "-offline", "-corefile", w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n"))
	expect(t, "the folder", look(), before)
}

func TestANameInNoListByMode(t *testing.T) {
	w := newWorld(t)
	w.Publish("gc-32b", nil)
	if err := protocoltest.Load(w.Server, strings.NewReader("gc-32b popular.example/\nse-4b evil.example/\n")); err != nil {
		t.Fatal(err)
	}
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  mode realtime\n }\n}\n")
	if status, out, errOut := invoke(t, "update", "-now", "-corefile", corefile); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	_, out, _ := invoke(t, "check", "-corefile", corefile, "popular.example")
	expect(t, "text", out, "popular.example: safe\n    note        no threat list has it\n")
}

func TestAThreatForFramesIsNoted(t *testing.T) {
	w := filled(t)
	w.RemoveThreat("evil.example/")
	w.AddThreat("evil.example/", sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_FRAME_ONLY)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n")
	_, out, _ := invoke(t, "check", "-json", "-confirm", "-corefile", corefile, "evil.example")
	if got := decode[checked](t, out)[0]; got.Verdict != "unsafe" || !strings.Contains(string(got.Note), "FRAME_ONLY; allow would let the name pass") {
		t.Errorf("got %+v", got)
	}
}

// The name of a target of forward is not blocked: without it nothing would be resolved.
func TestCheckSaysWhyANeededNamePasses(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n forward . tls://evil.example\n}\n")
	for _, more := range []string{"", "-confirm"} {
		status, out, errOut := invoke(t, append([]string{"check", "-corefile", corefile}, strings.Fields(more+" evil.example")...)...)
		if status != 0 || errOut != "" {
			t.Errorf("%s: status %d, %s", more, status, errOut)
		}
		expect(t, "check "+more, out, `evil.example: safe
    list        needed
    decided by  allow
    note        never blocked by Safe Browsing or a list by URL: it is a server that this server forwards queries to
`)
	}
	if status, out, _ := invoke(t, "check", "-corefile", corefile, "www.evil.example"); status != 1 || !strings.Contains(out, "unsure") {
		t.Errorf("status %d, %s", status, out)
	}
}

// A browser that opens an address asks no name server: "safe" alone would promise too much.
func TestCheckSaysThatAnAddressIsNoMatterOfDNS(t *testing.T) {
	w := newWorld(t)
	hash := lookup.HashExpression("192.0.2.66/")
	w.Publish("se-4b", [][]byte{hash[:4]})
	if status, _, errOut := w.update(t); status != 0 {
		t.Fatal(errOut)
	}
	const note = "an IP address: a browser that opens it asks no name server, so no DNS blocks it"
	for arg, verdict := range map[string]string{
		"192.0.2.1":            "safe",
		"http://192.0.2.1/x":   "safe",
		"0xC0000201":           "safe", // the same address, as browsers read it
		"192.0.2.66":           "unsure",
		"2001:db8::1":          "safe",
		"[2001:db8::1]":        "safe",
		"http://[2001:db8::1]": "safe",
		"::ffff:192.0.2.1":     "safe",
	} {
		_, out, errOut := invoke(t, "check", "-json", "-db", w.dir, arg)
		got := decode[checked](t, out)
		if errOut != "" || len(got) != 1 || got[0].Verdict != verdict || !strings.Contains(string(got[0].Note), note) {
			t.Errorf("%s: got %+v, %q", arg, got, errOut)
		}
	}
	if _, out, _ := invoke(t, "check", "-db", w.dir, "192.0.2.1", "a.192.0.2.1.example"); strings.Count(out, note) != 1 {
		t.Errorf("got %q", out)
	}
}
