package ownlist

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/programtest"
)

func TestMain(m *testing.M) {
	programtest.TwoProcessors()
	m.Run()
}
