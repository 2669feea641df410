package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// An engine lives as long as somebody holds it, and a hold ends once.
func TestEqualSettingsShareAnEngineUntilTheLastHoldEnds(t *testing.T) {
	s := Settings{Endpoint: "http://shared.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	other := s
	other.Cache = 7
	synctest.Test(t, func(t *testing.T) {
		google := protocoltest.New(t)
		google.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		r := ForTests{NewRegistry(Edge{Transport: google, FirstContact: func() time.Duration { return 0 }})}
		want := func(engines, holders int) {
			t.Helper()
			if e, h := r.Count(); e != engines || h != holders {
				t.Errorf("Expected %d engines and %d holds, got %d and %d", engines, holders, e, h)
			}
		}
		first, endFirst, err := r.Acquire(s, "key")
		if err != nil {
			t.Fatal(err)
		}
		second, endSecond, err := r.Acquire(s, "key")
		if err != nil || first != second {
			t.Fatalf("Expected the same engine, got %p and %p, %v", first, second, err)
		}
		want(1, 2)
		endFirst()
		endFirst()
		want(1, 1)
		third, endThird, err := r.Acquire(other, "key")
		if err != nil || third == first {
			t.Fatalf("Expected an engine of its own for other settings, %v", err)
		}
		want(2, 2)
		endSecond()
		endThird()
		want(0, 0)
		if !r.Ready() {
			t.Error("Expected that nothing is waited for when no engine is left")
		}
	})
}
