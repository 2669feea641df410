package protocol

import (
	"errors"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestRawPrefixesHave4To32Bytes(t *testing.T) {
	for _, test := range []struct {
		size  int32
		bytes int
		want  int // entries; -1: an error
	}{
		{3, 12, -1}, {4, 12, 3}, {32, 64, 2}, {33, 66, -1}, {5, 12, -1}, {4, 0, 0}, {0, 0, -1}, {-4, 12, -1},
	} {
		got, err := rawEntries(t.Context(), test.size, make([]byte, test.bytes))
		if test.want < 0 && !errors.Is(err, updater.ErrMalformed) || test.want >= 0 && (err != nil || got.Count != test.want || got.Width != int(test.size)) {
			t.Errorf("%d bytes of %d: got %+v, %v, want %d entries", test.bytes, test.size, got, err, test.want)
		}
	}
}
