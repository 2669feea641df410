package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestWarningsOfTheCorefileAreToldOnce(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, "(mine) {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha4-4b\n }\n}\na.example {\n import mine\n}\nb.example {\n import mine\n}\n")
	_, out, _ := invoke(t, "doctor", "-offline", "-corefile", corefile)
	if n := strings.Count(out, "warning  corefile  "+corefile+":5"); n != 1 || !strings.Contains(out, "did you mean pha-4b?") {
		t.Errorf("doctor: %d warnings, %s", n, out)
	}
}

// A shell passes such a file for <(command): it can be read only once.
func TestACorefileMayBeAPipe(t *testing.T) {
	w := newWorld(t)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := pipe.WriteString(". {\n safebrowsing {\n  block " + ownFile(t, "a.example") + "\n }\n}\n"); err != nil {
		t.Fatal(err)
	}
	pipe.Close()
	file := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(file); err != nil {
		t.Skipf("This test needs /dev/fd: %v", err)
	}
	if _, out, errOut := invoke(t, "doctor", "-offline", "-corefile", file); !strings.Contains(out, "corefile  1 of 1 server block has safebrowsing") {
		t.Errorf("%s%s", out, errOut)
	}
	if n := len(w.Requests("")); n != 0 {
		t.Errorf("%d requests", n)
	}
}
