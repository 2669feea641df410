package ownlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// dripping is a body that brings some bytes a second until ctx ends.
type dripping struct {
	ctx   context.Context
	bytes int
}

// Read implements io.Reader.
func (d dripping) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
	}
	return copy(p, strings.Repeat("#", min(d.bytes, len(p)-1))+"\n"), nil
}

// mixed is a server of slow and of quick lists, which counts those under way.
type mixed struct {
	mu          sync.Mutex
	under, most int
}

// RoundTrip implements http.RoundTripper. The path is how many bytes a second come; 0: all.
func (m *mixed) RoundTrip(r *http.Request) (*http.Response, error) {
	var bytes int
	fmt.Sscanf(r.URL.Path, "/%d", &bytes)
	var body io.Reader = strings.NewReader("bad.example\n")
	if bytes > 0 {
		m.mu.Lock()
		m.under++
		m.most = max(m.most, m.under)
		m.mu.Unlock()
		context.AfterFunc(r.Context(), func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.under--
		})
		body = dripping{r.Context(), bytes}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), ContentLength: -1, Body: io.NopCloser(body)}, nil
}

// Lists of servers that drip, or that are slow without malice, are fetched beside the others.
func TestASlowServerKeepsNoOtherListWaiting(t *testing.T) {
	testkit.Long(t)
	for _, tc := range []struct {
		bytes  int // a second, of each of six slow lists
		most   int // of these under way together
		from   time.Duration
		to     time.Duration // when the seventh, quick list is fetched
		waited bool          // which was reported
	}{
		{100, 6, 0, 31 * time.Second, false},                             // drips: gives its place away
		{31 << 10, sideBySide, 14 * time.Minute, 16 * time.Minute, true}, // is fast enough, and continues for 15 minutes
	} {
		db := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			server := new(mixed)
			r := newURLRegistry(limits{15 * time.Minute, time.Minute, 30 * time.Second}, server)
			var mu sync.Mutex
			var waiting []URLWaiting
			open := func(path string) *URLList {
				return r.open(URLConfig{URL: "https://lists.example.org/" + path, DB: db, MaxBytes: 1 << 30}, Config{}, func(e URLEvent) {
					mu.Lock()
					defer mu.Unlock()
					if e, ok := e.(URLWaiting); ok {
						waiting = append(waiting, e)
					}
				})
			}
			for i := range 6 {
				defer open(fmt.Sprintf("%d?%d", tc.bytes, i)).Close()
			}
			synctest.Wait()
			begun := time.Now()
			quick := open("0")
			defer quick.Close()
			for quick.source.current().Changed.IsZero() && time.Since(begun) < time.Hour {
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait() // the slow ones begin at the same moment
			if took := time.Since(begun); took < tc.from || took > tc.to {
				t.Errorf("%d bytes a second: the quick list came after %s", tc.bytes, took)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if server.most != tc.most {
				t.Errorf("%d bytes a second: %d downloads side by side, want %d", tc.bytes, server.most, tc.most)
			}
			mu.Lock()
			defer mu.Unlock()
			if (len(waiting) > 0) != tc.waited {
				t.Errorf("%d bytes a second: reported %+v", tc.bytes, waiting)
			}
			for _, w := range waiting {
				if len(w.Others) != sideBySide {
					t.Errorf("%s waits for %q", w.Name, w.Others)
				}
			}
		})
	}
}

// A list that is closed and opened again has one run at a time, and one that is being closed
// does not try with other settings than its own.
func TestAListThatIsOpenedAgainHasOneRunAtATime(t *testing.T) {
	db := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		under, most, urls := 0, 0, map[string]bool{}
		r := newURLRegistry(patient, transport(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			under++
			most, urls[r.URL.String()] = max(most, under), true
			mu.Unlock()
			time.Sleep(5 * time.Minute) // a disk or a server that does not see the end of the context
			mu.Lock()
			under--
			mu.Unlock()
			return nil, errors.New("it was given up")
		}))
		c := URLConfig{URL: "https://lists.example.org/a.txt", DB: db}
		for range 3 {
			l := r.open(c, Config{}, func(e URLEvent) {})
			time.Sleep(2 * time.Minute)
			l.Close() // waits for some seconds only
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if most != 1 || len(urls) != 1 || len(r.ending) != 0 {
			t.Errorf("%d runs at a time, asked for %v, %d ends are kept", most, urls, len(r.ending))
		}
		if s, err := ReadURLState(c); err == nil && s.Failing() {
			t.Errorf("a failure was saved that was none: %+v", s)
		}
	})
}

// Names of folders may have any characters.
func TestAFolderWithABracketIsTakenAsItIs(t *testing.T) {
	db := filepath.Join(t.TempDir(), "a[b*c")
	f := newFixture(t, func(c *URLConfig) { c.DB = db })
	f.fetch(send("a.example\n"))
	if got := SavedURLs(db); len(got) != 1 {
		t.Errorf("saved: %+v", got)
	}
	left := strings.TrimSuffix(f.source.path, listSuffix) + ".list.123.tmp"
	must(t, os.WriteFile(left, nil, 0o600))
	old := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(left, old, old))
	f.source.clean()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unfinished file stays: %v", err)
	}
}
