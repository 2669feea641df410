package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

func TestUpdateFetchesOnceAndRefusesASecondTime(t *testing.T) {
	w := newWorld(t)
	status, out, errOut := w.update(t)
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	expect(t, "text", w.plain(out), `se-4b: updated, 2 entries, next not before TIME
mw-4b: updated, 1 entries, next not before TIME
uws-4b: updated, 0 entries, next not before TIME
`)
	until := time.Now().Add(time.Hour)
	w.ClientStarted()
	for range 2 {
		status, out, errOut = w.update(t, "-json")
		if status != 2 || !strings.Contains(errOut, "nothing may be fetched before ") || !strings.Contains(errOut, "in 1h0m0s: ") && !strings.Contains(errOut, "in 59m5") {
			t.Errorf("the second time: status %d, %q", status, errOut)
		}
		told, err := time.Parse(time.RFC3339, stamps.FindString(errOut))
		if err != nil || told.Sub(until).Abs() > 10*time.Second {
			t.Errorf("refused until %s, %v, want %s", told, err, until)
		}
	}
	first, _, _ := strings.Cut(out, "\n")
	expect(t, "keys", keys(first), "name outcome entries not_before error")
	for i, want := range []outcome{{"mw-4b", "waiting", 1, "", ""}, {"se-4b", "waiting", 2, "", ""}, {"uws-4b", "waiting", 0, "", ""}} {
		got := decode[outcome](t, out)[i]
		if got.NotBefore = ""; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if n := len(w.Requests("")); n != 1 {
		t.Errorf("%d requests, want one", n)
	}
}

func TestUpdateFetchesOnlyWhatIsNamedAndDue(t *testing.T) {
	w := newWorld(t)
	if status, out, errOut := w.update(t, "-lists", "mw-4b"); status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	status, out, _ := w.update(t, "-lists", "mw-4b,se-4b")
	if status != 0 || w.plain(out) != "mw-4b: waiting, 1 entries, next not before TIME\nse-4b: updated, 2 entries, next not before TIME\n" {
		t.Errorf("status %d, %s", status, out)
	}
}

func TestUpdateLeavesABusyFolderAlone(t *testing.T) {
	w := filled(t)
	lock := flock.New(filepath.Join(w.dir, "lock"))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer lock.Close()
	if status, out, errOut := w.update(t); status != 2 || out != "" || !strings.Contains(errOut, "the folder is in use: a running CoreDNS keeps its lists fresh by itself") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}

func TestUpdateThatFails(t *testing.T) {
	w := newWorld(t)
	w.Break("batchGet", 1, protocoltest.Fault{Status: http.StatusForbidden})
	status, out, errOut := w.update(t, "-lists", "se-4b")
	if status != 2 || !strings.Contains(errOut, "403") || w.plain(out) != "se-4b: waiting, 0 entries, next not before TIME\n" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	if status, _, errOut := w.update(t, "-lists", "se-4b"); status != 2 || !strings.Contains(errOut, "nothing may be fetched before") {
		t.Errorf("after a failure: status %d, %s", status, errOut)
	}
	if status, out, errOut := invoke(t, "lists", "-json", "-db", w.dir); status != 0 && status != 1 || strings.Contains(out, `"failures":0`) {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}

func TestUpdateOfWhichAListIsRejected(t *testing.T) {
	w := newWorld(t)
	w.Break("batchGet", 1, protocoltest.ListFaults()["wrong checksum"])
	status, out, errOut := w.update(t, "-json", "-lists", "se-4b")
	got := decode[outcome](t, out)[0]
	if status != 1 || got.Outcome != "rejected" || got.Error == "" || errOut != "" {
		t.Errorf("status %d, %+v, %s", status, got, errOut)
	}
}

func TestUpdateLeavesListsOfAnotherServerAlone(t *testing.T) {
	w := filled(t)
	status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-endpoint", "http://127.0.0.1:1")
	if status != 2 || !strings.Contains(w.plain(errOut), "DB holds lists of ENDPOINT: give -endpoint ENDPOINT, or another folder") {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestUpdateSendsTheKeyOfTheEnvironment(t *testing.T) {
	w := newWorld(t)
	w.SetKey("KEY")
	t.Setenv(keyVariable, "KEY")
	if status, _, errOut := w.update(t); status != 0 {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestUpdateWaitsForTheFirstContactUnlessToldNotTo(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var out, errOut output
	c := command()
	c.Writer, c.ErrWriter = &out, &errOut
	err := c.Run(ctx, []string{"safebrowsing", "update", "-db", w.dir, "-endpoint", w.endpoint})
	// One time in 6000 the delay is shorter than 10 ms, and then the lists come.
	if !errors.Is(err, context.DeadlineExceeded) && err != nil {
		t.Errorf("got %v, want that it still waited", err)
	}
	if status, _, errOut := w.update(t); err != nil && status != 0 {
		t.Errorf("after it was stopped: %d, %s", status, errOut)
	}
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	if newProgress(new(output)) != nil {
		t.Error("a buffer was taken for a terminal")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if newProgress(file) != nil {
		t.Error("a file was taken for a terminal")
	}
	line := func(time.Time, time.Time) string { return "on the way" }
	var nobody *progress
	nobody.show(line)
	nobody.stop()
	out := new(output)
	p := &progress{w: out, done: make(chan struct{})}
	p.show(line)
	p.show(line)
	p.stop()
	expect(t, "progress", out.String(), "\r\x1b[K| on the way\r\x1b[K")
	unused := &progress{w: out, done: make(chan struct{})}
	unused.stop()
}
