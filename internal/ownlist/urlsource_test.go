package ownlist

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestOverTLS(t *testing.T) {
	var target string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, target, http.StatusFound)
			return
		}
		w.Write([]byte("a.example\n"))
	}))
	defer server.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("A redirect from https to http is followed")
		w.Write([]byte("a.example\n"))
	}))
	defer plain.Close()
	target = plain.URL
	trusted := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
	for _, test := range []struct {
		name, path string
		transport  http.RoundTripper
		want       string        // in the error
		soon       time.Duration // until the next attempt, at most; 0: whatever
	}{
		{"trusted", "/list", trusted, "", 0},
		{"a redirect to http", "/away", trusted, "a redirect from https to http", 0},
		{"not trusted, or a wrong clock", "/list", nil, "certificate", time.Minute},
	} {
		f := newFixture(t, func(c *URLConfig) { c.URL = server.URL + test.path })
		f.client = newClient("", test.transport)
		s := f.fetch(nil)
		if s.Failing() != (test.want != "") || !strings.Contains(s.Error, test.want) || test.soon > 0 && time.Until(s.Next) > test.soon {
			t.Errorf("%s: %+v, want %q", test.name, s, test.want)
		}
		f.client.CloseIdleConnections()
	}
}

func TestTheSettingsOfAllOpenersHold(t *testing.T) {
	list := func(refresh time.Duration, maxBytes int64) *URLList {
		return &URLList{cfg: URLConfig{URL: "https://x.example", Refresh: refresh, MaxBytes: maxBytes}}
	}
	for _, test := range []struct {
		openers  []*URLList
		refresh  time.Duration
		maxBytes int64
	}{
		{[]*URLList{list(0, 0)}, DefaultRefresh, DefaultMaxBytes},
		{[]*URLList{list(time.Hour, 5000)}, time.Hour, 5000},
		{[]*URLList{list(time.Hour, 5000), list(2*time.Hour, 9000)}, time.Hour, 9000},
		{[]*URLList{list(2*time.Hour, 9000), list(time.Hour, 5000)}, time.Hour, 9000},
		{[]*URLList{list(48*time.Hour, 5000), list(0, 0)}, DefaultRefresh, DefaultMaxBytes},
	} {
		s := &urlSource{openers: test.openers}
		if got := s.settings(); got.Refresh != test.refresh || got.MaxBytes != test.maxBytes {
			t.Errorf("%+v, want %s and %d", got, test.refresh, test.maxBytes)
		}
	}
}

func TestWithoutADBTheListIsInATemporaryFileUntilClose(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	server := httptest.NewServer(send("a.example\n"))
	defer server.Close()
	r := newURLRegistry(patient, nil)
	a, b := r.open(URLConfig{URL: server.URL}, Config{}, nil), r.open(URLConfig{URL: server.URL}, Config{}, nil)
	path := a.Path()
	if b.Path() != path {
		t.Errorf("%s and %s", path, b.Path())
	}
	testkit.Until(t, "the list", func() bool {
		s, err := readURLState("", path)
		return err == nil && !s.Checked.IsZero()
	})
	a.Close()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	b.Close()
	if files, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(files) > 0 {
		t.Errorf("Left behind: %q", files)
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	f := newFixture(t, func(c *URLConfig) { c.DB = "" })
	if s := f.fetch(send("a.example\n")); !strings.Contains(s.Error, "no such file") {
		t.Errorf("%+v", s)
	}
}

func TestAStartRemovesOnlyItsOwnUnfinishedFiles(t *testing.T) {
	f := newFixture(t, nil)
	dir, base := filepath.Dir(f.source.path), filepath.Base(f.source.path)
	must(t, os.MkdirAll(dir, 0o700))
	old := time.Now().Add(-2 * time.Hour)
	for name, stays := range map[string]bool{
		base + ".123.tmp": false, strings.TrimSuffix(base, listSuffix) + ".json.123.tmp": false,
		"0123.list.123.tmp": true, base: true, "notes.tmp": true,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must(t, os.Chtimes(filepath.Join(dir, name), old, old))
		f.source.clean()
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	young := filepath.Join(dir, base+".456.tmp") // another process downloads now
	must(t, os.WriteFile(young, nil, 0o600))
	f.source.clean()
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// Close waits for a download, which it gives up, and that is no failure.
func TestCloseGivesADownloadUp(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	defer server.Close()
	r := newURLRegistry(patient, nil)
	c := URLConfig{URL: server.URL, DB: t.TempDir()}
	l := r.open(c, Config{}, func(e URLEvent) { t.Errorf("%+v", e) })
	<-begun
	l.Close()
	l.Close()
	if _, err := ReadURLState(c); !os.IsNotExist(err) {
		t.Errorf("A state was saved: %v", err)
	}
	if taken := r.downloads.taken(); len(taken) > 0 {
		t.Errorf("The next download is kept waiting by %q", taken)
	}
}
