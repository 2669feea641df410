package engine

import (
	"os"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	files.WaitLimit = time.Minute         // a busy machine has slow disks that do not hang
	os.Exit(m.Run())
}
