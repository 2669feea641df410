package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestACorefileIsCheckedWithoutAStart(t *testing.T) {
	for _, tc := range []struct {
		name, corefile string
		status         int
		says           string
	}{
		{"right", ".:0 {\nsafebrowsing {\nblock ../../testdata/blocklist.txt\n}\nwhoami\n}\n", 0, "Corefile can be used"},
		{"a port that is in use", ".:1 {\nbind 192.0.2.1\nwhoami\n}\n", 0, "Corefile can be used"},
		{"an unknown directive", ".:0 {\nerors\n}\n", 1, "Corefile:2 - Error during parsing: Unknown directive 'erors'"},
		{"a wrong property", ".:0 {\nsafebrowsing {\nblok x\n}\nwhoami\n}\n", 1, `unknown property "blok": did you mean block?`},
		{"a plugin of another build", ".:0 {\nautopath x\n}\n", 1, "Unknown directive 'autopath': this program was built without autopath: go build -tags cluster"},
		{"empty", "", 1, "there is no Corefile"},
	} {
		if tc.name == "a plugin of another build" && slices.Contains(buildTags(t), "cluster") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "Corefile")
			testkit.Must(t, os.WriteFile(file, []byte(tc.corefile), 0o600))
			c := exec.Command(os.Args[0], "-check", "-conf", file)
			c.Env = append(os.Environ(), asServer+"=1")
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			_ = c.Run()
			if got := c.ProcessState.ExitCode(); got != tc.status || !strings.Contains(out.String(), tc.says) {
				t.Errorf("Expected status %d and %q, got %d and %q", tc.status, tc.says, got, out.String())
			}
		})
	}
}
