package story

import (
	"log"
	"os"
	"sync"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/programtest"
)

// programDir has the programs.
var programDir string

// built builds the programs once for all tests.
var built = sync.OnceValues(func() (map[string]string, error) {
	return programtest.Build(programDir, "coredns", "safebrowsing")
})

func TestMain(m *testing.M) {
	programtest.SideBySide(8)
	dir, err := os.MkdirTemp("", "safebrowsing-story")
	if err != nil {
		log.Fatal(err)
	}
	programDir = dir
	m.Run()
	os.RemoveAll(dir)
}

// programs returns the paths of the programs of this module, by their names.
func programs(t *testing.T) map[string]string {
	t.Helper()
	paths, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
