//go:build linux && amd64

package crash

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// otherKinds are kinds, and a file that another user owns.
func otherKinds() map[string]func(*testing.T, string) {
	all := map[string]func(*testing.T, string){
		"file of another user": func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("{}"), 0o600))
			if err := os.Chown(path, 12345, 12345); err != nil {
				t.Skip(err) // only root can
			}
		},
	}
	maps.Copy(all, kinds)
	return all
}

// Something else in the place of a file of a list by URL keeps nobody waiting: the list comes,
// or the state says why not.
func TestSomethingElseInThePlaceOfAListByURL(t *testing.T) {
	testkit.Long(t)
	for kind, put := range otherKinds() {
		for _, suffix := range []string{".list", ".json"} {
			t.Run(kind+"/"+suffix, func(t *testing.T) {
				p := scenario{prepare: nothing}.newPlace(t)
				path := p.byURL().Path()
				put(t, strings.TrimSuffix(path, ".list")+suffix)
				within(t, func() { useList(t, p) })
			})
		}
	}
}

func useList(t *testing.T, p place) {
	list := ownlist.OpenURL(p.byURL(), ownlist.Config{}, nil)
	defer list.Close()
	for {
		s := ownlist.URLStates()[0]
		raw := readIfRegular(p.byURL().Path())
		switch {
		case !s.Checked.IsZero() && raw != string(ownText("new")):
			t.Errorf("The list has %d bytes", len(raw))
			return
		case !s.Checked.IsZero(), s.Failing() && strings.Contains(s.Error, p.ownFiles()):
			return
		case s.Failing():
			t.Errorf("The state does not name the file: %s", s.Error)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Something else in the place of a file that commands edit ends in an error that names the
// file, or the command writes what it should. A file with a line that cannot be kept is never
// replaced.
func TestSomethingElseInThePlaceOfAFileThatIsEdited(t *testing.T) {
	testkit.Long(t)
	program() // it takes longer than an edit may
	for kind, put := range otherKinds() {
		t.Run(kind, func(t *testing.T) {
			p := scenario{prepare: nothing}.newPlace(t)
			file, paused := p.own(), filepath.Join(p.etc(), "paused")
			put(t, file)
			put(t, paused)
			within(t, func() {
				out, err := safebrowsing(allowNew(p))
				raw := readIfRegular(file)
				if named := strings.Contains(out, file); err != nil && !named || err == nil && !strings.Contains(raw, "new.example") {
					t.Errorf("%v: %s; the file is %.100q", err, out, raw)
				}
				if kind == "file of another user" && !strings.HasPrefix(raw, "{}") {
					t.Errorf("A line is lost: %q", raw)
				}
				err = pauseAll(p)
				if err != nil && !strings.Contains(err.Error(), paused) || p.isPaused() != (err == nil) {
					t.Errorf("%v; paused: %t", err, p.isPaused())
				}
			})
		})
	}
}

func readIfRegular(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	raw, _ := os.ReadFile(path)
	return string(raw)
}
