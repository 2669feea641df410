//go:build linux && amd64

package crash

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Files that commands edit: the operator's own list, and pauses.

func (p place) etc() string { return filepath.Join(p.root, "etc") }
func (p place) own() string { return filepath.Join(p.etc(), "allow.txt") }

// ownLines is a file that an operator has written by hand, without a line break at the end.
const ownLines = "# by hand\r\nold.example\r\n\r\n0.0.0.0 odd line\r\nlast.example"

// What the edits make of it.
var (
	withNew    = ownLines + "\r\nnew.example\r\n"
	withoutOld = strings.Replace(ownLines, "old.example\r\n", "", 1)
)

func ownFile(t *testing.T, p place) {
	testkit.Must(t, os.WriteFile(p.own(), []byte(ownLines), 0o640))
}

// allow returns the command with its words.
func allow(words ...string) func(p place) []string {
	return func(p place) []string { return append([]string{"allow", "-file", p.own()}, words...) }
}

func setPause(p place) error { return noted(p, pauseAll(p)) }

// pauseAll is what a running server does when it is told to pause.
func pauseAll(p place) error {
	_, err := block.ChangePauses(context.Background(), p.etc(), block.AllBlocks, time.Hour, true, time.Now())
	return err
}

// isPaused reports whether the file of pauses, if it is a regular one, has a pause in force.
func (p place) isPaused() bool {
	pauses, _ := block.ParsePauses([]byte(readIfRegular(block.PauseFile(p.etc()))))
	return slices.ContainsFunc(pauses, func(x block.Pause) bool { return x.Active(time.Now()) })
}

func safebrowsing(args []string) (string, error) {
	out, err := exec.Command(program(), args...).CombinedOutput()
	return string(out), err
}

// checkFile says that the file is the old or the new one, that an edit which has ended without an
// error is there, and that the next edit works, keeps each line, and tidies up.
func checkFile(after string) func(*testing.T, place, []note, bool) {
	return func(t *testing.T, p place, said []note, _ bool) {
		t.Helper()
		raw, err := os.ReadFile(p.own())
		text := string(raw)
		if err != nil || text != ownLines && text != after {
			t.Errorf("The file is %q, %v", raw, err)
		}
		if count(said, "done") > 0 {
			testkit.Equal(t, "the file after the edit", text, after)
		}
		out, err := safebrowsing(allow("other.example")(p))
		testkit.Is(t, "the next edit: "+out, err, nil)
		testkit.Equal(t, "the file after it", testkit.Read(t, p.own()), strings.TrimSuffix(text, "\r\n")+"\r\nother.example\r\n")
		wantTidy(t, p.etc())
	}
}

// checkPaused says that a pause which has been set is in force, and that the next one works and tidies up.
func checkPaused(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	if raw, err := os.ReadFile(block.PauseFile(p.etc())); err == nil {
		_, err := block.ParsePauses(raw)
		testkit.Is(t, "the file of pauses: "+string(raw), err, nil)
	}
	if count(said, "done") > 0 {
		testkit.Equal(t, "a pause that has been set is in force", p.isPaused(), true)
	}
	testkit.Is(t, "the next pause", pauseAll(p), nil)
	testkit.Equal(t, "it is in force", p.isPaused(), true)
	wantTidy(t, p.etc())
}

// editBesides is an edit while another program is stopped in one. It is done, or says that the folder is locked.
func editBesides(t *testing.T, p place) {
	out, err := safebrowsing(allow("other.example")(p))
	if err != nil && !strings.Contains(out, "another program has locked "+p.etc()) {
		t.Errorf("%v: %s", err, out)
	}
}
