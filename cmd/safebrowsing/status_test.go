package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestStatusSaysWhetherTheNetworkIsProtected(t *testing.T) {
	w := filled(t)
	empty, own := t.TempDir(), t.TempDir()+"/own.txt"
	if err := os.WriteFile(own, []byte("blocked.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, properties string
		status           int
		says             []string
	}{
		{"protected", "endpoint ENDPOINT\ndb DB\nblock " + own, 0, []string{
			"Protected by Safe Browsing v5 and own lists\n", "mode local, ENDPOINT, db DB\n", "se-4b   2 entries  fetched under a minute ago  next fetch in ", "mw-4b   1 entry ", "own.txt blocks 1 entry, for the zones .\n", "minimum wait of the server"}},
		{"budget", "endpoint ENDPOINT\ndb DB\nbudget 100", 0, []string{"searches left today: at least 100 of 100\n"}},
		{"never fetched", "endpoint ENDPOINT\ndb " + empty, 1, []string{"NOT protected\n", "problem  List se-4b is not in force", "se-4b   not in force"}},
		{"never fetched, own list", "endpoint ENDPOINT\ndb " + empty + "\nblock " + own, 1, []string{"Protected in part, by own lists\n"}},
		{"a list is missing", "endpoint ENDPOINT\ndb DB\nlists se-4b pha-4b", 1, []string{"Protected in part, by Safe Browsing v5\n", "problem  List pha-4b is not in force"}},
		{"db off", "endpoint ENDPOINT\ndb off", 1, []string{"NOT protected\n", "only in the memory of CoreDNS (db off)"}},
		{"monitor", "endpoint ENDPOINT\ndb DB\nmonitor", 1, []string{"NOT protected\n", "has monitor"}},
		{"own lists only", "block " + own, 0, []string{"Protected by own lists\n", "note     The server block for . has own lists only"}},
	} {
		corefile := w.corefile(t, ". {\n safebrowsing {\n  "+tc.properties+"\n }\n}\n")
		requests := len(w.Requests(""))
		status, out, errOut := invoke(t, "status", "-corefile", corefile)
		if status != tc.status || errOut != "" {
			t.Errorf("%s: status %d, want %d, %q\n%s", tc.name, status, tc.status, errOut, out)
		}
		testkit.WantParts(t, w.plain(out), tc.says...)
		if got := len(w.Requests("")); got != requests {
			t.Errorf("%s: %d requests, want none", tc.name, got-requests)
		}
		asJSON, object, _ := invoke(t, "status", "-json", "-corefile", corefile)
		expect(t, tc.name, keys(object), "state headline problems notes services")
		if got := decode[standing](t, object); asJSON != status || len(got) != 1 || !strings.HasPrefix(out, got[0].Headline+"\n") || (got[0].State == "protected") != (status == 0) || (len(got[0].Problems) == 0) != (status == 0) {
			t.Errorf("%s: status %d, %+v", tc.name, asJSON, got)
		}
	}
}

func TestStatusTellsOfAPauseAndHidesTheKey(t *testing.T) {
	w := filled(t)
	const key = "AIzaSyA-1234567890abcdefghijklmnopqrstu"
	corefile := w.corefile(t, fmt.Sprintf("example.org lan {\n safebrowsing {\n  endpoint ENDPOINT\n  api_key %s\n  db DB\n }\n}\n", key))
	now := time.Now()
	if err := os.WriteFile(block.PauseFile(w.dir), block.FormatPauses([]block.Pause{{Zone: "lan.", From: now, Until: now.Add(time.Hour)}}), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, _ := invoke(t, "status", "-corefile", corefile)
	if status != 1 || !strings.HasPrefix(out, "NOT protected\n") {
		t.Errorf("status %d, %s", status, out)
	}
	testkit.WantParts(t, out, "problem  Blocking is paused until ", "for the zones example.org. lan.", "safebrowsing pause off")
	if _, object, _ := invoke(t, "status", "-json", "-corefile", corefile); strings.Contains(out+object, key) {
		t.Errorf("the key is in %s%s", out, object)
	}
}
