package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// warned is a Corefile with a list that is probably mistyped. Two server blocks import the
// line.
const warned = "(mine) {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha4-4b\n }\n}\na.example {\n import mine\n}\nb.example {\n import mine\n}\n"

func TestWarningsOfTheCorefileAreToldOnce(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, warned)
	_, out, _ := invoke(t, "doctor", "-offline", "-corefile", corefile)
	if n := strings.Count(out, "warning  corefile  "+corefile+":5"); n != 1 || !strings.Contains(out, "did you mean pha-4b?") {
		t.Errorf("doctor: %d warnings, %s", n, out)
	}
}

// A shell passes such a file for <(command): it can be read only once.
func TestACorefileMayBeAPipe(t *testing.T) {
	w := newWorld(t)
	for _, command := range []string{"doctor -offline"} {
		r, pipe, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pipe.WriteString(". {\n safebrowsing {\n  block " + ownFile(t, "a.example") + "\n }\n}\n"); err != nil {
			t.Fatal(err)
		}
		pipe.Close()
		file := fmt.Sprintf("/dev/fd/%d", r.Fd())
		if _, err := os.Stat(file); err != nil {
			t.Skipf("This test needs /dev/fd: %v", err)
		}
		words := strings.Fields(command)
		args := append([]string{words[0], "-corefile", file}, words[1:]...)
		if _, out, errOut := invoke(t, args...); !strings.Contains(out, "corefile  1 of 1 server block has safebrowsing") {
			t.Errorf("%s: %s%s", command, out, errOut)
		}
		r.Close()
	}
	if n := len(w.Requests("")); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestWarningsOfTheCorefileAreThoseOfEachBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Corefile")
	corefile := "(ours) {\nsafebrowsing {\nblock " + ownFile(t, "blocked.example") + "\nallow old.example.org until 2020-01-01\n}\n}\n" +
		".:0 {\nimport ours\n}\nexample.org:0 {\nimport ours\n}\n"
	if err := os.WriteFile(path, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.KeyVariable, "")
	blocks, err := readCorefile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closeBlocks(blocks)
	for _, b := range blocks {
		if got := b.Config.Warnings; len(got) != 1 || !strings.Contains(got[0], "Corefile:4: allow old.example.org") {
			t.Errorf("Expected the warning of each block for the command line, got %q", got)
		}
	}
}
