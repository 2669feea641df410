package engine

import (
	"os"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/patience"
)

func TestMain(m *testing.M) {
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	patience.Limit = time.Minute          // a busy machine has slow disks that do not hang
	os.Exit(m.Run())
}
