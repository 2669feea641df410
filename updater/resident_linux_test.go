//go:build !race

package updater_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// resident returns the bytes of this process that are in memory.
func resident(t *testing.T) int {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	must(t, err)
	return pages * os.Getpagesize()
}

// Lists are outside of the heap, so that the collector does not see how many that are not in force any more pile up.
func TestReplacedListsAreGivenBack(t *testing.T) {
	testkit.Long(t)
	var answers [][]byte
	for i := range 2 {
		prefixes := ascendingPrefixes(2_000_000 + i)
		answers = append(answers, answerWith(t, false, nil, prefixes, bytesOf(prefixes)))
	}
	debug.FreeOSMemory()
	before := resident(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRunOf(t, answering(t, protocol.DialectV5, answers...), nil, "se-4b").started()
		time.Sleep(10 * time.Minute) // 32 updates at once, then one each minute
		synctest.Wait()
		sent, grown, held := r.times(updater.Fetched), resident(t)-before, r.database.Lists()[0].Set.Bytes()
		testkit.Between(t, "updates", sent, 40, 100)
		testkit.Between(t, "bytes more in memory", grown, -before, 4*held)
		r.stop()
	})
}
