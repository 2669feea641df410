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

// forbidden are imports that a layer would allow. TestProgramsAreLinkedWithWhatTheyNeed has more.
var forbidden = []struct{ from, to, why string }{
	{"internal/answer", "github.com/prometheus/", "it is pure"},
	{"internal/config", "github.com/prometheus/", "it only reads"},
	{"internal/config", module + "/internal/protocol", "it turns words into values, and knows no server"},
	{"internal/config", module + "/updater", "it turns words into values, and knows no server"},
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

func packages(t *testing.T, dirs ...string) (all []imported) {
	t.Helper()
	for _, dir := range dirs {
		out, err := exec.Command("go", "-C", dir, "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...").Output()
		testkit.Must(t, err)
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var p imported
			testkit.Must(t, d.Decode(&p))
			all = append(all, p)
		}
	}
	return all
}

func roomOf(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func layerOf(path string) int {
	return slices.IndexFunc(layers, func(layer []string) bool { return slices.Contains(layer, roomOf(path)) })
}

// The most packages of the programs, and the most arrows among them. Lower them when you can: a package pays if it lets a
// reader leave others closed.
const (
	mostPackages = 19
	mostArrows   = 72
)

// counted are all packages but code that the schemas generate, tests and their helpers, the bench, and client, which is for
// programs of others.
func counted(path string) bool {
	name := roomOf(path)
	return inModule(path) && !strings.Contains(name, "/pb/") && !strings.HasSuffix(name, "test") && !strings.HasPrefix(name, "test/") &&
		!slices.Contains([]string{"bench", "client", "internal/testkit"}, name)
}

func inModule(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

const redis, sharing = "github.com/valkey-io/valkey-go", module + "/internal/sharing"

func TestImportsPointOneWay(t *testing.T) {
	rooms, arrows, missing := 0, 0, slices.Concat(layers...)
	for _, p := range packages(t, "..", "../bench") {
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == roomOf(p.ImportPath) })
		from, room := layerOf(p.ImportPath), counted(p.ImportPath) && len(p.GoFiles) > 0
		if room {
			rooms++
		}
		if p.ImportPath == module {
			testkit.Between(t, "files of the plugin, which is the DNS handler only", len(p.GoFiles), 1, 8)
		}
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
			if room && counted(path) {
				arrows++
			}
			if inModule(path) && layerOf(path) >= from {
				t.Errorf("%s imports %s, which is not in a lower layer", p.ImportPath, path)
			}
			if slices.Contains(forTests, path) && !slices.Contains(forTests, p.ImportPath) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, path)
			}
			if path == redis && p.ImportPath != sharing {
				t.Errorf("%s imports %s: only %s does", p.ImportPath, redis, sharing)
			}
			for _, f := range forbidden {
				if p.ImportPath == module+"/"+f.from && strings.HasPrefix(path, f.to) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, f.why)
				}
			}
		}
	}
	testkit.Equal(t, "packages that there are not, and that the layers name", missing, []string{})
	testkit.Between(t, "packages of the programs", rooms, 10, mostPackages)
	testkit.Between(t, "arrows among them", arrows, 10, mostArrows)
}

// The client of Redis would add 10 MB to the name server, which does not use it. A relay is an engine with an HTTP
// face: it has no Corefile.
func TestProgramsAreLinkedWithWhatTheyNeed(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const nameServer, metrics, wire = "github.com/coredns/", "github.com/prometheus/", "google.golang.org/protobuf"
	redis := []string{redis, sharing}
	for path, without := range map[string][]string{
		"": redis, "/cmd/coredns": redis, "/cmd/safebrowsing": redis,
		"/lookup": {nameServer, metrics, wire}, "/updater": {nameServer, metrics, wire}, "/client": {nameServer, metrics}, // strangers import them
		"/internal/ownlist": {nameServer, metrics},
		"/internal/relay":   {"github.com/coredns/caddy", "github.com/coredns/coredns/core", module + "/internal/config"},
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
	out, err := exec.Command("go", "doc", "-short", module).Output()
	testkit.Must(t, err)
	testkit.Equal(t, "SafeBrowsing only", strings.TrimSpace(string(out)), "type SafeBrowsing struct{ ... }")
}
