package story

import (
	"flag"
	"log"
	"os"
	"runtime"
	"strconv"
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
	flag.Parse()
	// All tests run at once, unless -parallel says otherwise: they wait more than they work.
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set(strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	}
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
