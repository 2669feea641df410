package test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const module = "github.com/coredns-safebrowsing/safebrowsing"

// layers are the packages of the module, the lowest first. A package imports from lower layers only.
var layers = [][]string{
	{"internal/files", "internal/prefixset", "internal/protocol/pb/sbv4", "internal/protocol/pb/sbv5", "internal/protocol/pb/wrv1", "internal/say", "internal/testkit"},
	{"lookup", "internal/protocoltest"},
	{"updater"},
	{"internal/protocol", "internal/sharing", "internal/status", "internal/storetest"},
	{"internal/answer", "internal/ownlist"},
	{"internal/config", "internal/engine", "client"},
	{"internal/block", "internal/relay"},
	{"internal/control"},
	{""}, // the plugin
	{"cmd/coredns", "cmd/safebrowsing", "cmd/safebrowsing-relay", "bench", "test", "test/crash", "test/fleet", "test/server", "test/story"},
}

// forbidden are imports that a layer would allow.
var forbidden = []struct{ from, to, why string }{
	{"lookup", "github.com/coredns/", "a library that knows no name server"},
	{"lookup", "github.com/prometheus/", "it returns values"},
	{"lookup", "google.golang.org/protobuf", "the wire is for internal/protocol"},
	{"updater", "github.com/coredns/", "a library that knows no name server"},
	{"updater", "github.com/prometheus/", "it reports events"},
	{"updater", "google.golang.org/protobuf", "the wire is for internal/protocol"},
	{"client", "github.com/coredns/", "a library that knows no name server"},
	{"client", "github.com/prometheus/", "it reports events"},
	{"internal/ownlist", "github.com/coredns/", "it reports events"},
	{"internal/ownlist", "github.com/prometheus/", "it returns values"},
	{"internal/answer", "github.com/prometheus/", "it is pure"},
	{"internal/config", "github.com/prometheus/", "it only reads"},
	{"internal/config", module + "/internal/protocol", "it turns words into values, and knows no server"},
	{"internal/config", module + "/updater", "it turns words into values, and knows no server"},
	{"internal/relay", "github.com/coredns/caddy", "a relay reads no Corefile"},
	{"internal/block", "github.com/coredns/caddy", "a block is known by its Config: the plugin reads the Corefile"},
	{"cmd/safebrowsing", module + "/internal/engine", "it starts no engine"},
	{"cmd/safebrowsing", module + "/internal/relay", "the relay is a program of its own"},
}

// forTests are packages that no program uses.
var forTests = []string{module + "/internal/storetest", module + "/internal/testkit"}

// imported is what go list tells of a package. Files and imports are without its tests.
type imported struct {
	ImportPath, Dir  string
	Imports, GoFiles []string
}

// packages lists the packages of the module and of the bench, which is a module of its own.
func packages(t *testing.T) []imported {
	t.Helper()
	return append(packagesBelow(t, ".."), packagesBelow(t, "../bench")...)
}

func packagesBelow(t *testing.T, dir string) (all []imported) {
	t.Helper()
	out, err := exec.Command("go", "-C", dir, "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...").Output()
	testkit.Must(t, err)
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p imported
		testkit.Must(t, d.Decode(&p))
		all = append(all, p)
	}
	return all
}

func layerOf(path string) int {
	name := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	return slices.IndexFunc(layers, func(layer []string) bool { return slices.Contains(layer, name) })
}

func TestImportsPointOneWay(t *testing.T) {
	all := packages(t)
	found(t, "packages of the module", len(all), 10)
	for _, name := range slices.Concat(layers...) {
		if path := strings.TrimSuffix(module+"/"+name, "/"); !slices.ContainsFunc(all, func(p imported) bool { return p.ImportPath == path }) {
			t.Errorf("Expected a package %s, as the layers say", path)
		}
	}
	for _, p := range all {
		from := layerOf(p.ImportPath)
		if from < 0 {
			t.Errorf("%s is in no layer: add it to one", p.ImportPath)
			continue
		}
		for _, name := range p.GoFiles {
			if name != "fortests.go" && strings.Contains(testkit.Read(t, filepath.Join(p.Dir, name)), "ForTests") {
				t.Errorf("%s of %s uses what is for tests", name, p.ImportPath)
			}
		}
		for _, path := range p.Imports {
			if ours := path == module || strings.HasPrefix(path, module+"/"); ours && layerOf(path) >= from {
				t.Errorf("%s imports %s, which is not in a lower layer", p.ImportPath, path)
			}
			if slices.Contains(forTests, path) && !slices.Contains(forTests, p.ImportPath) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, path)
			}
			for _, f := range forbidden {
				if p.ImportPath == module+"/"+f.from && strings.HasPrefix(path, f.to) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, f.why)
				}
			}
		}
	}
}

// The most packages of the programs, and the most arrows among them. Code that the schemas generate, helpers of tests
// and client, which is for programs of others, are not counted. Lower them when you can.
const (
	mostPackages = 19
	mostArrows   = 72
)

// A package pays if it lets a reader leave others closed.
func TestTheHouseHasFewRoomsAndArrows(t *testing.T) {
	counted := func(path string) bool {
		name := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		return (path == module || strings.HasPrefix(path, module+"/")) && !strings.Contains(name, "/pb/") && !strings.HasSuffix(name, "test") &&
			!strings.HasPrefix(name, "test/") && name != "internal/testkit" && name != "client"
	}
	packages, arrows := 0, 0
	for _, p := range packagesBelow(t, "..") {
		if !counted(p.ImportPath) || len(p.GoFiles) == 0 {
			continue
		}
		packages++
		for _, path := range p.Imports {
			if counted(path) {
				arrows++
			}
		}
	}
	t.Logf("%d packages and %d arrows among them", packages, arrows)
	if packages > mostPackages || arrows > mostArrows {
		t.Errorf("Expected at most %d packages and %d arrows, got %d and %d", mostPackages, mostArrows, packages, arrows)
	}
}

// The client of Redis would add 10 MB to the name server, which does not use it. A relay is an engine with an HTTP
// face: it has no Corefile.
func TestProgramsAreLinkedWithWhatTheyNeed(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const library, ours = "github.com/valkey-io/valkey-go", module + "/internal/sharing"
	for _, p := range packages(t) {
		if p.ImportPath != ours && slices.Contains(p.Imports, library) {
			t.Errorf("%s imports %s: only %s does", p.ImportPath, library, ours)
		}
	}
	redis := []string{library, ours}
	for path, without := range map[string][]string{
		"": redis, "/cmd/coredns": redis, "/cmd/safebrowsing": redis,
		"/lookup": {"github.com/coredns/"}, "/updater": {"github.com/coredns/"}, "/client": {"github.com/coredns/"}, // strangers import them
		"/internal/relay": {"github.com/coredns/caddy", "github.com/coredns/coredns/core", module + "/internal/config"},
	} {
		out, err := exec.Command("go", "list", "-deps", module+path).Output()
		testkit.Must(t, err)
		for dependency := range strings.FieldsSeq(string(out)) {
			if slices.ContainsFunc(without, func(not string) bool { return strings.HasPrefix(dependency, not) }) {
				t.Errorf("%s%s is linked with %s", module, path, dependency)
			}
		}
	}
}

// Others can import the plugin package: what it exports is a promise.
func TestThePluginPackageExportsThePluginOnly(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	testkit.Must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if len(files) > 8 {
		t.Errorf("Expected eight files at most, since the plugin is the DNS handler only, got %q", files)
	}
	out, err := exec.Command("go", "doc", "-short", module).Output()
	testkit.Must(t, err)
	testkit.Equal(t, "SafeBrowsing only", strings.TrimSpace(string(out)), "type SafeBrowsing struct{ ... }")
}
