package say

import "testing"

func TestSizesHaveAUnitThatAPersonReads(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 999: "999 bytes", 1_000: "1.0 kB", 60_120: "60.1 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 104_857_600: "104.9 MB",
		81_496_600_000: "81.5 GB", 12_345_600_000_000: "12345.6 GB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: Expected %q, got %q", n, want, got)
		}
	}
}
