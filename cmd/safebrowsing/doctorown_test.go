package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorOfOwnLists(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		word, content string
		status        int
		want          string // status of the check
		text          string // the text of the diagnosis, after the path of the list
		advice        string
	}{
		"good":              {"block", "a.example\nb.example\n", 0, isOK, " blocks 2 names, last changed TIME", ""},
		"one name":          {"block", "a.example\n", 0, isOK, " blocks 1 name, last changed TIME", ""},
		"not supported":     {"block", "a.example\n/x/\n", 0, isOK, " blocks 1 name, last changed TIME; 1 line is not supported (1 regular expression, first at line 2)", ""},
		"bad lines":         {"block", "a.example\na b\nc d\n", 0, isWarning, ` blocks 1 name, last changed TIME; 2 lines are not list entries (first at line 2: "a b")`, "correct the lines"},
		"machines":          {"block", "a.example\n10.0.0.1 nas\n", 0, isWarning, ` blocks 1 name, last changed TIME; 1 line has an address other than`, "0.0.0.0"},
		"HTML":              {"block", "<html>\nerror\n", 1, isProblem, " blocks nothing: it looks like an HTML page, last changed TIME", "download the list again"},
		"empty":             {"block", "", 1, isProblem, " blocks nothing: it is empty, last changed TIME", "replace it with a list"},
		"top-level domain":  {"block", "a.example\n||de^\n", 0, isWarning, " blocks 2 names, last changed TIME; line 2 blocks the whole top-level domain de", "unless you want them"},
		"empty, to allow":   {"allow", "# none\n", 0, isOK, " allows nothing: it has only comments, last changed TIME", ""},
		"some have ended":   {"allow", "a.example # until 2020-01-31\nb.example # until 2099-01-31\n", 0, isWarning, " allows 1 name, last changed TIME; 1 entry has ended", "a later date"},
		"all have ended":    {"allow", "a.example # until 2020-01-31\n", 0, isOK, " allows nothing: it has only entries that have ended, last changed TIME; 1 entry has ended", ""},
		"allows everything": {"allow", "* CNAME .\n", 0, isWarning, " allows 1 name, last changed TIME; line 1 allows every name", "unless you want them"},
	} {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "list.txt")
			write(t, list, test.content)
			changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			if err := os.Chtimes(list, changed, changed); err != nil {
				t.Fatal(err)
			}
			block := " {\n safebrowsing {\n  endpoint ENDPOINT\n  db off\n  " + test.word + " " + list + "\n }\n}\n"
			status, found, out := examine(t, w.corefile(t, "a"+block+"b"+block), "-offline")
			d := found["own list"]
			text := strings.Replace(string(d.Text), testkit.LocalTimes("2026-05-01T12:00:00Z"), "TIME", 1)
			if status != test.status || d.Status != test.want || !strings.HasPrefix(text, list+test.text) || !strings.Contains(string(d.Advice), test.advice) {
				t.Errorf("status %d, %+v, want %d, %s, %q", status, d, test.status, test.want, test.text)
			}
			if n := strings.Count(out, `"check":"own list"`); n != 1 {
				t.Errorf("a list of two server blocks is told of %d times", n)
			}
		})
	}
}

func TestDoctorOfHostsThatTheCorefileAllows(t *testing.T) {
	w := newWorld(t)
	stanza := func(allow string) string {
		return ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db off\n  allow " + allow + "\n }\n}\n"
	}
	if _, found, _ := examine(t, w.corefile(t, stanza("a.example until 2099-01-31")), "-offline"); found["own list"].Check != "" {
		t.Errorf("%+v, want nothing about what is well", found["own list"])
	}
	_, found, _ := examine(t, w.corefile(t, stanza("a.example b.example until 2020-01-31")), "-offline")
	if d := found["own list"]; d.Status != isWarning || d.Text != "the Corefile itself allows 1 name; 1 entry has ended" {
		t.Errorf("%+v", d)
	}
}

func TestDoctorOfAListThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	for _, list := range []string{"HERE/none.txt", "HERE"} { // HERE is a folder
		status, found, out := examine(t, w.corefile(t, ". {\n safebrowsing {\n  block "+list+"\n }\n}\n"), "-offline")
		if d := found["corefile"]; status != 1 || d.Status != isProblem || !strings.Contains(string(d.Text), strings.TrimPrefix(list, "HERE/")) && list != "HERE" {
			t.Errorf("%s: status %d, %s", list, status, out)
		}
	}
}
