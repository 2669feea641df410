// Package fleet tests many clients behind a relay: the relay is a process, and so are as many
// clients as start in bearable time. It is a package of its own so that its seconds of
// waiting run at the same time as the other tests.
package fleet

import (
	"os"
	"sync"
	"testing"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// programs builds the programs once. They are below programDir.
var (
	programDir string
	programs   = sync.OnceValues(func() (map[string]string, error) {
		return testkit.Build(programDir, "coredns", "safebrowsing", "safebrowsing-relay")
	})
)

func TestMain(m *testing.M) {
	clog.Discard()
	testkit.SideBySide(4)
	os.Exit(run(m))
}

// run runs the tests and removes the programs.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	programDir = dir
	return m.Run()
}

// program returns the path of a program, which it builds if necessary.
func program(t testing.TB, name string) string {
	t.Helper()
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return all[name]
}
