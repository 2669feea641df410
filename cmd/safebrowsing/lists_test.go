package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestListsOfAFolder(t *testing.T) {
	w := filled(t)
	status, out, errOut := invoke(t, "lists", "-json", "-db", w.dir)
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	all, err := updater.Status(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(out, "\n")
	expect(t, "keys", keys(first), "name in_force entries prefix_bytes version sha256 updated not_before failures reason")
	got := decode[listed](t, out)
	for i, want := range []struct {
		name    string
		entries int
	}{{"mw-4b", 1}, {"se-4b", 2}, {"uws-4b", 0}} {
		l := listed{
			want.name, true, want.entries, []int{4}, base64.StdEncoding.EncodeToString(all[i].Version), hex.EncodeToString(all[i].Checksum[:]),
			all[i].Updated.UTC().Format(time.RFC3339), all[i].NotBefore.UTC().Format(time.RFC3339), 0, "minimum wait of the server",
		}
		if !reflect.DeepEqual(got[i], l) {
			t.Errorf("got %+v, want %+v", got[i], l)
		}
	}
	_, out, _ = invoke(t, "lists", "-db", w.dir)
	version := func(i int) string { return base64.StdEncoding.EncodeToString(all[i].Version) }
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		fields := strings.Fields(w.plain(line))
		want := "NAME ENTRIES BYTES EACH VERSION CHECKSUM UPDATED NOT BEFORE FAILURES"
		if i > 0 {
			want = fmt.Sprintf("%s %d 4 %s verified TIME TIME 0", all[i-1].Name, all[i-1].Entries, short(version(i-1)))
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("line %d: %q, want %q", i, got, want)
		}
	}
}

func TestDamagedListsAreShownAsSuch(t *testing.T) {
	w := filled(t)
	file := filepath.Join(w.dir, "se-4b.list")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	write(t, file, string(raw))
	if err := os.Remove(filepath.Join(w.dir, "uws-4b.list")); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := invoke(t, "lists", "-db", w.dir)
	lines := strings.Split(out, "\n")
	if status != 1 || !strings.Contains(lines[2], "DAMAGED") || !strings.Contains(lines[3], "not fetched") || !strings.Contains(errOut, "list se-4b: damaged file: wrong checksum") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	_, out, _ = invoke(t, "lists", "-json", "-db", w.dir)
	if got := decode[listed](t, out)[1]; got.Name != "se-4b" || got.SHA256 != "" || got.Version != "" || got.Entries != 0 || got.Updated == "" || !slices.Equal(got.PrefixBytes, []int{4}) {
		t.Errorf("got %+v", got)
	}
	write(t, filepath.Join(w.dir, "schedule.json"), "{")
	if status, out, errOut := invoke(t, "lists", "-json", "-db", w.dir); status != 1 || !strings.Contains(errOut, "schedule") || strings.Count(out, "\n") != 2 {
		t.Errorf("without a schedule: status %d, %s%s", status, out, errOut)
	}
}

func TestAFolderWithoutLists(t *testing.T) {
	if status, out, errOut := invoke(t, "lists", "-db", t.TempDir()); status != 1 || out != "" || !strings.Contains(errOut, "safebrowsing update") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}

func TestListsOfACorefileThatAreMissingAreSaid(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha-4b\n }\n}\n")
	status, out, errOut := invoke(t, "lists", "-json", "-corefile", corefile)
	if status != 1 || errOut != "safebrowsing: list pha-4b of the Corefile has not been fetched yet\n" || len(decode[listed](t, out)) != 3 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	if err := os.Remove(filepath.Join(w.dir, "se-4b.list")); err != nil { // but it has been asked for
		t.Fatal(err)
	}
	status, _, errOut = invoke(t, "lists", "-json", "-corefile", corefile)
	if status != 1 || !strings.Contains(errOut, "safebrowsing: list se-4b of the Corefile has not been fetched yet\n") {
		t.Errorf("without a file: status %d, %s", status, errOut)
	}
}

func TestListsOfTheDefaultFolder(t *testing.T) {
	w := filled(t)
	t.Setenv("STATE_DIRECTORY", w.dir)
	if status, out, errOut := invoke(t, "lists"); status != 0 || strings.Count(out, "verified") != 3 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}
