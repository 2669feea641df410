package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

func TestListsByURL(t *testing.T) {
	t.Setenv(KeyVariable, "")
	const list = "https://lists.example.org/a.txt"
	db := t.TempDir()
	want := func(allow bool, refresh time.Duration, maxBytes int64, urls ...string) (all []OwnFile) {
		for _, url := range urls {
			all = append(all, OwnFile{Allow: allow, Fetch: ownlist.URLConfig{URL: url, DB: db, Resolvers: "192.0.2.1:53", Refresh: refresh, MaxBytes: maxBytes}})
		}
		return all
	}
	for line, lists := range map[string][]OwnFile{
		"block " + list: want(false, 24*time.Hour, 256<<20, list),
		"block refresh 1h " + list + " max_bytes 10MB":     want(false, time.Hour, 10_000_000, list),
		"block " + list + " " + list + "?b max_bytes 1GiB": want(false, 24*time.Hour, 1<<30, list, list+"?b"),
		"allow " + list + " refresh 5m host.example":       want(true, 5*time.Minute, 256<<20, list),
	} {
		c, err := stanza(t, fmt.Sprintf("safebrowsing {\n%s\n%s\ndb %s\nresolver 192.0.2.1\n}", line, listing(t), db))
		if err != nil || len(c.Own) == 0 || !slices.Equal(c.Own[:len(c.Own)-1], lists) || len(c.Warnings) > 0 || c.Online {
			t.Errorf("%s: Expected %+v, got %+v, %q, %v", line, lists, c.Own, c.Warnings, err)
		}
	}
}

func TestListsByURLThatProtectLessAreAWarning(t *testing.T) {
	t.Setenv(KeyVariable, "")
	for _, test := range []struct{ text, want string }{
		{"db off\nblock https://lists.example.org/a", "Testfile:2: db is off: lists by URL are fetched at each start"},
		{"db DB\nblock http://me:s3cret@lists.example.org/a?s3cret", "Testfile:3: http://lists.example.org/a#4ba0 is fetched by http"},
		{"db DB\nblock http://192.168.1.1/a", ""},
	} {
		c, err := stanza(t, "safebrowsing {\n"+strings.Replace(test.text, "DB", t.TempDir(), 1)+"\n}")
		got := strings.Join(c.Warnings, "\n")
		if err != nil || !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || strings.Contains(got, "s3cret") {
			t.Errorf("%s: Expected %q, got %q, %v", test.text, test.want, got, err)
		}
	}
}
