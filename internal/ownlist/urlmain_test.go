package ownlist

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.TwoProcessors()
	m.Run()
}
