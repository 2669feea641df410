package redisstore

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/programtest"
)

func TestMain(m *testing.M) {
	programtest.SideBySide(4)
	m.Run()
}
