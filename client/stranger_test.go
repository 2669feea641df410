package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A module that is not ours can use what the examples of client and updater use: Go refuses it internal packages.
func TestExamplesCompileInAnotherModule(t *testing.T) {
	testkit.Long(t)
	ours, err := filepath.Abs("..")
	testkit.Must(t, err)
	dir := t.TempDir()
	for from, to := range map[string]string{
		"example_test.go": "client", "../updater/example_test.go": "updater",
		"../go.mod": ".", "../go.sum": ".",
	} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, to), 0o700))
		testkit.Write(t, filepath.Join(dir, to), filepath.Base(from), testkit.Read(t, from))
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
	inside("test", "-run", "^Example", "./...")
}
