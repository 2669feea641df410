package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// startOfStacks returns how large the stack of a new goroutine is.
func startOfStacks() uint64 {
	sample := []metrics.Sample{{Name: "/gc/stack/starting-size:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// wait has goroutines wait with next to nothing in use until end is closed.
func wait(goroutines int, end <-chan struct{}) {
	for range goroutines {
		go func() { <-end }()
	}
}

// It is not what the runtime promises: this test says when another version of Go behaves otherwise.
func TestNewGoroutinesHaveRoomForAQuery(t *testing.T) {
	const (
		enough = 16 << 10 // a query of template, with prometheus, grows a stack of 8 KiB
		burst  = 100      // queries that have come, and wait for a core
	)
	end := make(chan struct{})
	wait(burst, end)
	warmStacks(end)
	with := startOfStacks()
	if with < enough {
		t.Errorf("Expected at least %d bytes, got %d", enough, with)
	}
	close(end)
	for stop := time.Now().Add(30 * time.Second); startOfStacks() >= with && time.Now().Before(stop); time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	if without := startOfStacks(); without >= with {
		t.Errorf("Expected less than %d bytes without them, got %d", with, without)
	}
}
