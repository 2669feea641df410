package ownlist

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func someState() URLState {
	at := time.Date(2026, 11, 22, 4, 14, 37, 5, time.UTC)
	return URLState{
		Name: "https://lists.example.org/a.txt", ETag: `W/"ü"`, LastModified: "Sun, 22 Nov 2026 04:14:37 GMT", Changed: at, Checked: at, Tried: at, Next: at,
		Bytes: 3, Entries: 1, Names: 1<<64 - 1, Failures: 2, Since: at, Error: "the server answered status 503", Doubt: &Doubt{7, at},
	}
}

func TestAStateIsReadAsItWasSaved(t *testing.T) {
	c := URLConfig{URL: "https://lists.example.org/a.txt", DB: t.TempDir()}
	if _, err := ReadURLState(c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Got %v", err)
	}
	must(t, os.MkdirAll(filepath.Dir(c.Path()), 0o700))
	must(t, os.WriteFile(c.Path(), []byte("a.b"), 0o600))
	want := someState()
	must(t, want.save(c.Path()))
	if got, err := ReadURLState(c); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want\n%+v", got, err, want)
	}
	must(t, os.WriteFile(c.Path(), []byte("a.bc"), 0o600)) // not the list that was saved
	if got, err := ReadURLState(c); err != nil || got.ETag != "" || !got.Changed.IsZero() || got.Failures != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, os.WriteFile(stateOf(c.Path()), []byte("{"), 0o600))
	if got, err := ReadURLState(c); !errors.Is(err, errState) || got != (URLState{Name: c.Name()}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzURLState(f *testing.F) {
	raw, err := json.Marshal(someState())
	must(f, err)
	f.Add(raw)
	f.Add([]byte(`{"etag":"a\r\nX-Evil: 1","bytes":-1,"failures":99999999999999999999}`))
	f.Add([]byte(strings.Repeat(" ", maxState) + "{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseURLState(raw)
		if err != nil {
			if !errors.Is(err, errState) {
				t.Errorf("%v", err)
			}
			return
		}
		if s.Bytes < 0 || s.Entries < 0 || s.Failures < 0 || strings.ContainsAny(s.ETag+s.LastModified+s.Error, "\r\n\x00") {
			t.Errorf("%+v", s)
		}
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		if next := firstDue(s, time.Hour, now, 0.5); next.After(now.Add(25 * time.Hour)) {
			t.Errorf("Due at %s by %+v", next, s)
		}
		again, err := json.Marshal(s)
		if err != nil {
			return // a time zone that JSON cannot have
		}
		if got, err := parseURLState(again); err != nil || !got.Next.Equal(s.Next) || got.Names != s.Names {
			t.Errorf("%+v, %v, want %+v", got, err, s)
		}
	})
}

func TestNamesHaveNoSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"https://lists.example.org/a/b.txt":          "https://lists.example.org/a/b.txt",
		"https://lists.example.org:8443":             "https://lists.example.org:8443",
		"https://lists.example.org/a%2Fb.txt":        "https://lists.example.org/a%2Fb.txt",
		"https://me:s3cret@lists.example.org/b.txt":  "https://lists.example.org/b.txt#",
		"https://s3cret@lists.example.org/b.txt":     "https://lists.example.org/b.txt#",
		"https://lists.example.org/b.txt?key=s3cret": "https://lists.example.org/b.txt#",
	} {
		got := URLConfig{URL: url, DB: "db"}.Name()
		if strings.HasSuffix(want, "#") && len(got) == len(want)+4 {
			got = got[:len(want)]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	a, b := URLConfig{URL: "https://lists.example.org/?a", DB: "db"}, URLConfig{URL: "https://lists.example.org/?b", DB: "db"}
	if a.Name() == b.Name() || a.Path() == b.Path() {
		t.Errorf("%s and %s", a.Name(), b.Name())
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	c := URLConfig{URL: "https://user:pass%2Fword@lists.example.org/?key=s3cret%20value"}
	for _, text := range []string{"user:pass%2Fword", "pass/word", "key=s3cret%20value", "s3cret value"} {
		if got := wordsOf(errors.New("redirected to https://x.example/"+text+"\r\nand\x1b[2J"), c); strings.Contains(got, text) || strings.ContainsAny(got, "\r\n\x1b") {
			t.Errorf("%q", got)
		}
	}
}
