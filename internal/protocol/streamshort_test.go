package protocol

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// TestAShortAnswerTakesLittleMemory is about the answer for a list that has not changed.
func TestAShortAnswerTakesLittleMemory(t *testing.T) {
	const answers, most = 100, 16 << 10
	raw := marshal(t, &sbv5.HashList{Name: "se-4b", Version: []byte{7}, MinimumWaitDuration: durationpb.New(time.Hour)})
	taken := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range answers {
		if err := readOne(t.Context(), bytes.NewReader(raw), int64(len(raw)), "se-4b", func(*updater.Update) { taken++ }); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if taken != answers {
		t.Errorf("%d updates taken, want %d", taken, answers)
	}
	if got := (after.TotalAlloc - before.TotalAlloc) / answers; got > most {
		t.Errorf("an answer of %d bytes takes %d bytes of memory, want at most %d", len(raw), got, most)
	}
}
