//go:build !race

package updater_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
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
	chance := rand.New(rand.NewPCG(5, 6))
	var answers [][]byte
	for range 2 {
		prefixes := make([]uint32, 0, 2_000_000)
		for p := chance.Uint32N(1000); len(prefixes) < cap(prefixes); p += 1 + chance.Uint32N(2000) {
			prefixes = append(prefixes, p)
		}
		raw := make([]byte, 0, 4*len(prefixes))
		for _, p := range prefixes {
			raw = binary.BigEndian.AppendUint32(raw, p)
		}
		answers = append(answers, answerWith(t, false, nil, prefixes, raw))
	}
	sent := 0
	client, err := protocol.NewV5(protocol.Config{UserAgent: "resident/1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		sent++
		answer := answers[sent%2]
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Request: r,
			Body: io.NopCloser(bytes.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})})
	must(t, err)
	debug.FreeOSMemory()
	before := resident(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRunOf(t, client, "", updater.Origin{}, "se-4b")
		r.start()
		time.Sleep(10 * time.Minute) // 32 updates at once, then one each minute
		synctest.Wait()
		grown, held := resident(t)-before, r.database.Lists()[0].Set.Bytes()
		t.Logf("%d updates: %d KiB more in memory, a list has %d KiB", sent, grown>>10, held>>10)
		if sent < 40 || grown > 4*held {
			t.Errorf("%d KiB more in memory after %d updates of a list of %d KiB", grown>>10, sent, held>>10)
		}
		r.stop()
	})
}
