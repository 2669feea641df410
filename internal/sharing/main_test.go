package sharing

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.SideBySide(12)
	m.Run()
}
