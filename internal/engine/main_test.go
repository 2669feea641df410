package engine

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	os.Exit(m.Run())
}
