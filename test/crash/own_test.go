//go:build linux && amd64

package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Lists by URL.

// ownDB is the folder of the db, ownFiles the folder of its lists by URL.
func (p place) ownDB() string    { return filepath.Join(p.root, "listdb") }
func (p place) ownFiles() string { return filepath.Join(p.ownDB(), ownlist.URLFolder) }

// byURL is the list. Its name leads to whatever HTTP_PROXY says.
func (p place) byURL() ownlist.URLConfig {
	return ownlist.URLConfig{URL: "http://lists.example/hosts.txt", DB: p.ownDB()}
}

func ownText(version string) (text []byte) {
	for n := range 2000 {
		text = fmt.Appendf(text, "%s%d.example\n", version, n)
	}
	return text
}

// serveList answers requests of this process for the list. asked is called for each.
func serveList(asked func() error) (err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	os.Setenv("HTTP_PROXY", "http://"+l.Addr().String()) // read once, at the first request of a process
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked() == nil {
			w.Write(ownText("new"))
		}
	}))
	return nil
}

// oldOwnList saves the old content without a state: the list is due, and has a content in force.
func oldOwnList(t *testing.T, p place) {
	testkit.Must(t, os.WriteFile(p.byURL().Path(), ownText("old"), 0o600))
}

func fetchList(p place) error {
	if err := serveList(func() error { return p.say("asked") }); err != nil {
		return err
	}
	if s := p.fetched(); s.Checked.IsZero() {
		return fmt.Errorf("the list does not come: %s", s.Error)
	}
	return p.say("done")
}

// fetched opens the list, and returns its state when a fetch has ended, or after 20 seconds.
func (p place) fetched() (s ownlist.URLState) {
	defer ownlist.OpenURL(p.byURL(), ownlist.Config{}, nil).Close()
	for end := time.Now().Add(20 * time.Second); s.Checked.IsZero() && !s.Failing() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		s = ownlist.URLStates()[0]
	}
	return s
}

// askedNow counts the requests of this process, by all places.
var askedNow = make(chan struct{}, 1000)

// checkOwnList says that the list is the old or the new one, and that the next request comes a
// minute after the one before at the earliest.
func checkOwnList(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	c := p.byURL()
	raw, err := os.ReadFile(c.Path())
	isNew := bytes.Equal(raw, ownText("new"))
	if !isNew && !bytes.Equal(raw, ownText("old")) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("The list has %d bytes, %v", len(raw), err)
	}
	if count(said, "done") > 0 {
		testkit.Equal(t, "the list is the new one", isNew, true)
	}
	for len(askedNow) > 0 {
		<-askedNow
	}
	list := ownlist.OpenURL(c, ownlist.Config{}, nil)
	defer list.Close()
	if count(said, "asked") > 0 {
		wantNoFetch(t, c)
		return
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s, err := ownlist.ReadURLState(c)
		if err == nil && !s.Checked.IsZero() {
			break
		}
		if err == nil && len(askedNow) == 0 && time.Until(s.Next) > 10*time.Second {
			return // noted, and then the program ended before it asked; or the disk failed
		}
		if time.Now().After(end) {
			t.Fatalf("The list does not come: %+v, %v", s, err)
		}
	}
	testkit.Equal(t, "the list after the next fetch is the new one", testkit.Read(t, c.Path()) == string(ownText("new")), true)
}

func wantNoFetch(t *testing.T, c ownlist.URLConfig) {
	t.Helper()
	s, err := ownlist.ReadURLState(c)
	testkit.Must(t, err)
	testkit.Between(t, "the time until the next fetch", time.Until(s.Next), 30*time.Second, 7*24*time.Hour)
	select {
	case <-askedNow:
		t.Error("the list is fetched again at once")
	case <-time.After(50 * time.Millisecond):
	}
}

// fetchBesides is a fetch while another program is stopped in one: it asks only if that one has not.
func fetchBesides(t *testing.T, p place) { checkOwnList(t, p, p.said(t), false) }

// usesList keeps nobody waiting: the list comes, or the state says why not.
func usesList(t *testing.T, p place, _ string) {
	s := p.fetched()
	if !s.Checked.IsZero() {
		testkit.Equal(t, "the list is the new one", readIfRegular(p.byURL().Path()) == string(ownText("new")), true)
		return
	}
	testkit.Equal(t, "it fails", s.Failing(), true)
	testkit.WantParts(t, s.Error, p.ownFiles())
}

// editsAllow ends in an error that names the file, or writes what it should. A file with a line that cannot be kept is never replaced.
func editsAllow(t *testing.T, p place, kind string) {
	out, err := safebrowsing(allow("new.example")(p))
	raw := readIfRegular(p.own())
	if named := strings.Contains(out, p.own()); err != nil && !named || err == nil && !strings.Contains(raw, "new.example") {
		t.Errorf("%v: %s; the file is %.100q", err, out, raw)
	}
	if kind == "file of another user" {
		testkit.WantStart(t, raw, "{}")
	}
}

// pauses ends in an error that names the file, or in a pause.
func pauses(t *testing.T, p place, _ string) {
	err := pauseAll(p)
	testkit.Equal(t, fmt.Sprint(err, ": paused"), p.isPaused(), err == nil)
	if err != nil {
		testkit.WantParts(t, err.Error(), filepath.Join(p.etc(), "paused"))
	}
}

func readIfRegular(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	raw, _ := os.ReadFile(path)
	return string(raw)
}
