package updater

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A module that is not ours can use all that the examples use: Go refuses it internal packages.
func TestExamplesCompileInAnotherModule(t *testing.T) {
	testkit.Long(t)
	ours, err := filepath.Abs("..")
	must(t, err)
	dir := t.TempDir()
	for from, to := range map[string]string{"example_test.go": "example_test.go", "../go.mod": "go.mod", "../go.sum": "go.sum"} {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, to), text, 0o600))
	}
	module := "github.com/coredns-safebrowsing/safebrowsing"
	inside := func(args ...string) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	// The versions of modules are ours, so that nothing has to be fetched.
	inside("mod", "edit", "-module", "example.org/stranger", "-require", module+"@v0.0.0", "-replace", module+"="+ours)
	inside("test", "-run", "^Example", ".")
}
