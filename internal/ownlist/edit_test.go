package ownlist

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestAddKeepsEveryOtherLine(t *testing.T) {
	soon := then.Add(30 * time.Minute)
	const stamp = "2026-06-01T12:30:00Z"
	for _, tt := range []struct {
		name       string
		allow      bool
		text, want string
		until      time.Time
		line       int
		ended      int
	}{
		{"an empty file", true, "", "x.example\n", time.Time{}, 1, 0},
		{"with an end", true, "", "x.example # until " + stamp + "\n", soon, 1, 0},
		{"comments and order", true, "# mine\r\n\r\n  b.example  # Bob\r\na.example\r\n", "# mine\r\n\r\n  b.example  # Bob\r\na.example\r\nx.example\r\n", time.Time{}, 5, 0},
		{"no line break at the end", true, "a.example", "a.example\nx.example\n", time.Time{}, 2, 0},
		{"a byte order mark", true, "\uFEFFa.example\n", "\uFEFFa.example\nx.example\n", time.Time{}, 2, 0},
		{"ended entries go", true, "# a\na.example # until 2026-05-31\nb.example # until 2026-06-02\n", "# a\nb.example # until 2026-06-02\nx.example\n", time.Time{}, 3, 1},
		{"the same entry", true, "x.example\na.example\n", "x.example\na.example\n", time.Time{}, 1, 0},
		{"a permanent entry stays", true, "x.example\n", "x.example\n", soon, 1, 0},
		{"a longer end", true, "x.example # until 2026-06-01T12:10:00Z, for Bob\na.example\n", "x.example # until " + stamp + " # for Bob\na.example\n", soon, 1, 0},
		{"its comment stays the same", true, "x.example # until 2026-06-01T12:10:00Z # for Bob\n", "x.example # for Bob\n", time.Time{}, 1, 0},
		{"a host alone becomes a tree", true, "|x.example^\n", "x.example\n", time.Time{}, 1, 0},
		{"twice becomes once", true, "x.example # until 2026-06-02\nx.example # until 2026-06-03\n", "x.example\n", time.Time{}, 1, 0},
		{"a line about others too stays", true, "0.0.0.0 x.example y.example\n", "0.0.0.0 x.example y.example\nx.example\n", time.Time{}, 2, 0},
		{"no longer empty on purpose", true, "# mine\n# empty on purpose\n", "# mine\nx.example\n", time.Time{}, 2, 0},
		{"a block list", false, "a.example\n", "a.example\n.x.example\n", time.Time{}, 2, 0},
		{"a block list with the host alone", false, "x.example\n", ".x.example\n", time.Time{}, 1, 0},
		{"a block list with the tree", false, "||x.example^\n", "||x.example^\n", time.Time{}, 1, 0},
		{"an exception becomes a block", false, "@@||x.example^\n", ".x.example\n", time.Time{}, 1, 0},
		{"in a zone file", false, "$ORIGIN rpz.example.\nbad.example CNAME .\n", "$ORIGIN rpz.example.\nbad.example CNAME .\n.x.example\n", time.Time{}, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Allow: tt.allow}
			got, err := Add([]byte(tt.text), c, host(t, "x.example"), tt.until, then)
			must(t, err)
			if string(got.Text) != tt.want || got.Line != tt.line || len(got.Ended) != tt.ended || got.Changed != (tt.text != tt.want) {
				t.Errorf("%q, line %d, %q ended, changed %v; want %q, line %d, %d", got.Text, got.Line, got.Ended, got.Changed, tt.want, tt.line, tt.ended)
			}
			again, err := Add(got.Text, c, host(t, "x.example"), tt.until, then)
			if err != nil || again.Changed || !bytes.Equal(again.Text, got.Text) {
				t.Errorf("the second time: %q, %v", again.Text, err)
			}
		})
	}
}

func TestAddRefusesWhatWouldHaveNoEffect(t *testing.T) {
	for _, tt := range []struct {
		name, host, text, want string
		until                  time.Time
	}{
		{"a comment", "!x.example", "", "an entry for !x.example would have no effect in this file: edit it by hand", time.Time{}},
		{"a web page", "x.example", "<!DOCTYPE html>\n<html>", "it looks like an HTML page: download the list again", time.Time{}},
		{"an end in a block list", "x.example", "", "entries of a block list have no end", then.Add(time.Hour)},
	} {
		if got, err := Add([]byte(tt.text), Config{}, host(t, tt.host), tt.until, then); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %q, %v", tt.name, got.Text, err)
		}
	}
}

func TestRemoveTakesOnlyTheLinesOfTheHost(t *testing.T) {
	for _, tt := range []struct{ name, text, want, trouble string }{
		{"one line", "# mine\nx.example # Bob\na.example\n", "# mine\na.example\n", ""},
		{"all forms", "x.example\n*.x.example\n0.0.0.0 x.example\na.example\n", "a.example\n", ""},
		{"and what has ended", "x.example\nb.example # until 2026-05-31\na.example\n", "a.example\n", ""},
		{"the last entry", "# mine\nx.example\n", "# mine\n# empty on purpose\n", ""},
		{"names below it stay", "x.example\na.x.example\n", "a.x.example\n", ""},
		{"not there", "a.example\n", "", "no line is about x.example"},
		{"above it", "# mine\n.example\n", "", `no line is about x.example: line 2, ".example", is about a name above it`},
		{"other hosts too", "a.example\n0.0.0.0 x.example y.example\n", "", "line 2 is about other hosts too: edit it by hand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Remove([]byte(tt.text), Config{Allow: true}, host(t, "x.example"), then)
			if trouble := ""; err != nil {
				if trouble = err.Error(); trouble != tt.trouble {
					t.Errorf("%q, want %q", trouble, tt.trouble)
				}
			} else if string(got.Text) != tt.want || !got.Changed || len(got.Removed) == 0 || tt.trouble != "" {
				t.Errorf("%q, %q removed; want %q", got.Text, got.Removed, tt.want)
			}
		})
	}
}

func TestLinesAreThoseWithEntries(t *testing.T) {
	all, err := Entries([]byte("# mine\na.example\n\n  b.example # until 2026-06-02T10:00:00Z\nnot a line\n"), Config{Allow: true})
	must(t, err)
	if len(all) != 2 || all[0] != (Listed{2, "a.example", time.Time{}}) || all[1].Line != 4 || all[1].Text != "b.example # until 2026-06-02T10:00:00Z" || all[1].Until.IsZero() {
		t.Errorf("%+v", all)
	}
}

// The file whose last entry was removed must not be taken for a failed download.
func TestAListThatIsEmptyOnPurposeIsTaken(t *testing.T) {
	watching(t, func(w *watched) {
		got, err := Remove([]byte("one.example\n"), Config{}, host(t, "one.example"), then)
		must(t, err)
		write(t, w.path, string(got.Text))
		polled()
		w.want("loaded", "")
		if s := w.file.State(); s.Err != nil || s.Nothing() != "" {
			t.Errorf("%v, %q", s.Err, s.Nothing())
		}
		write(t, w.path, "two.example\n")
		polled()
		w.want("loaded", "two.example")
		write(t, w.path, "# nothing\n")
		polled()
		w.want("empty", "two.example")
	})
}

func TestABigFileIsPolledEachTenthTime(t *testing.T) {
	watching(t, func(w *watched) {
		filling := strings.Repeat("# a comment of sixty-four bytes, to have the file be a big one.\n", bigFile/64)
		write(t, w.path, "two.example\n"+filling)
		polled()
		w.want("loaded", "two.example")
		write(t, w.path, "three.example\n"+filling)
		polled()
		w.want("", "two.example")
		time.Sleep(9 * pollInterval)
		polled()
		w.want("loaded", "three.example")
	})
}
