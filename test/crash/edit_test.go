//go:build linux && amd64

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	must(t, os.WriteFile(p.own(), []byte(ownLines), 0o640))
}

func allowNew(p place) []string { return []string{"allow", "-file", p.own(), "new.example"} }

func removeOld(p place) []string {
	return []string{"allow", "-file", p.own(), "-remove", "old.example"}
}

func writeCorefile(t *testing.T, p place) {
	text := fmt.Sprintf(". {\n safebrowsing {\n  endpoint http://127.0.0.1:1\n  db %s\n }\n}\n", p.etc())
	must(t, os.WriteFile(filepath.Join(p.etc(), "Corefile"), []byte(text), 0o600))
}

func pauseAll(p place) []string {
	return []string{"pause", "-keep", "-corefile", filepath.Join(p.etc(), "Corefile"), "1h"}
}

// safebrowsing runs a command to its end.
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
		if count(said, "done") > 0 && text != after {
			t.Errorf("The edit has ended, and the file is %q", raw)
		}
		if out, err := safebrowsing([]string{"allow", "-file", p.own(), "other.example"}); err != nil {
			t.Errorf("The next edit: %v: %s", err, out)
		}
		if !strings.HasSuffix(text, "\r\n") {
			text += "\r\n"
		}
		if raw, err := os.ReadFile(p.own()); string(raw) != text+"other.example\r\n" {
			t.Errorf("After the next edit the file is %q, %v", raw, err)
		}
		wantTidy(t, p.etc())
	}
}

// checkPaused says that a pause which has been set is in force, and that the next one works and
// tidies up.
func checkPaused(t *testing.T, p place, said []note, _ bool) {
	t.Helper()
	writeCorefile(t, p)
	out, err := safebrowsing([]string{"pause", "-corefile", filepath.Join(p.etc(), "Corefile")})
	if paused := strings.Contains(out, "Paused until"); err != nil || !paused && (count(said, "done") > 0 || !strings.Contains(out, "Nothing is paused")) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := safebrowsing(pauseAll(p)); err != nil || !strings.Contains(out, "Paused until") {
		t.Errorf("The next pause: %v: %s", err, out)
	}
	wantTidy(t, p.etc())
}

// editBesides is an edit while another program is stopped in one. It is done, or says that the
// folder is locked.
func editBesides(t *testing.T, p place) {
	out, err := safebrowsing([]string{"allow", "-file", p.own(), "other.example"})
	if err != nil && !strings.Contains(out, "another program has locked "+p.etc()) {
		t.Errorf("%v: %s", err, out)
	}
}
