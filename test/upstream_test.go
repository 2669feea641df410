package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// TestThePatchForLocalAnswersResolverArpa applies deploy/upstream/local.patch to the CoreDNS of go.mod
// and runs the tests of the plugin local, with those that the patch adds: as a package of this module, of
// which only this build sees the files.
func TestThePatchForLocalAnswersResolverArpa(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	git := testkit.Program(t, "git")
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns").Output()
	testkit.Must(t, err)
	patch, err := filepath.Abs("../deploy/upstream/local.patch")
	testkit.Must(t, err)
	const plugin = "plugin/local"
	source, copied := strings.TrimSpace(string(out)), t.TempDir()
	testkit.Must(t, os.CopyFS(filepath.Join(copied, plugin), os.DirFS(filepath.Join(source, plugin))))
	files, err := filepath.Glob(filepath.Join(copied, plugin, "*"))
	testkit.Must(t, err)
	replace := make(map[string]string)
	for _, file := range files {
		if err := os.Chmod(file, 0o600); err != nil { // those in the module cache cannot be written
			t.Fatal(err)
		}
		replace[filepath.Join(filepath.Dir(patch), "local", filepath.Base(file))] = file
	}
	apply := exec.Command(git, "apply", patch)
	apply.Dir = copied
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(copied))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	testkit.Must(t, err)
	tests := filepath.Join(copied, "local.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", tests, "-overlay", testkit.Write(t, copied, "overlay.json", string(overlay)), module+"/deploy/upstream/local")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(tests, "-test.v").CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestLocal ") {
		t.Errorf("%v\n%s", err, out)
	}
}
