package main

import (
	"testing"
	"time"
)

func TestTheLoadKeepsItsRateAndMissesNothing(t *testing.T) {
	u, err := newNameServer()
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	// On a busy machine the load stands still, and leaves out what it could not send in time.
	for end := time.Now().Add(30 * time.Second); ; {
		shots, err := shoot(t.Context(), u.address, []string{"a.example", "b.example"}, 1000, 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		ascending, missing := latencies(shots)
		if len(shots) < 1 || len(shots) > 301 || missing > 0 || ascending[0] == 0 {
			t.Fatalf("%d queries, %d lost, latencies from %v", len(shots), missing, ascending[:min(3, len(ascending))])
		}
		if len(shots) >= 100 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d queries in 300 ms at 1,000 a second", len(shots))
		}
	}
}

func TestWhatIsNotAnsweredIsLost(t *testing.T) {
	shots, err := shoot(t.Context(), "127.0.0.1:9", []string{"a.example"}, 1000, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, missing := latencies(shots); missing == 0 || missing != len(shots) {
		t.Errorf("%d of %d lost", missing, len(shots))
	}
}

func TestAWindowHoldsItsShots(t *testing.T) {
	begun := time.Now()
	var shots []shot
	for i := range 10 {
		shots = append(shots, shot{at: begun.Add(time.Duration(i) * time.Second), latency: time.Duration(i)})
	}
	got := within(shots, begun.Add(2*time.Second), 3*time.Second)
	if len(got) != 3 || got[0].latency != 2 || got[2].latency != 4 {
		t.Errorf("got %v", got)
	}
}

func TestAnswersBelongToTheLastQueryOfTheirID(t *testing.T) {
	var l load
	l.count.Store(70_000)
	for id, want := range map[uint16]int{0: 65_536, 4463: 69_999, 4464: 4464, 65_535: 65_535} {
		packet := make([]byte, 12)
		packet[0], packet[1] = byte(id>>8), byte(id)
		if got := l.number(packet); got != want {
			t.Errorf("ID %d: number %d, want %d", id, got, want)
		}
	}
	l.count.Store(1)
	if got := l.number(make([]byte, 12)); got != 0 {
		t.Errorf("the first: %d", got)
	}
	if got := l.number([]byte{0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); got >= 0 {
		t.Errorf("an ID that was never sent: %d", got)
	}
}
