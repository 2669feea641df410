package engine

import (
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

func TestEnginesOfTwoVersionsAtGooglesServerWaitForEachOther(t *testing.T) {
	pair{Settings{Protocol: protocol.DialectV4.Name}, Settings{Protocol: protocol.DialectV5.Name}, true}.try(t)
}

func TestAMinimumWaitOfVersion4AboveADayIsOneWarning(t *testing.T) {
	wantLongWaits(t, protocol.DialectV4, 1, "for lists se-4b, mw-4b. ")
}
