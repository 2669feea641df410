package sharing

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/programtest"
)

func TestMain(m *testing.M) {
	programtest.SideBySide(12)
	m.Run()
}
