package lookup

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The generic cell rate algorithm admits exactly what a leaky bucket admits, and
// is written without one.
func TestLeakyBucketAdmitsWhatGCRAAdmits(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	const rate, capacity = 8, 16 // powers of two: no rounding
	bucket := LeakyBucket{Rate: rate, Capacity: capacity}
	interval := time.Second / rate
	var level Level
	now, arrival := epoch, epoch
	for i := range 200_000 {
		now = now.Add(time.Duration(chance.IntN(256)) * time.Second / 1024) // parts of a second that binary fractions hold
		want := !arrival.After(now.Add((capacity - 1) * interval))
		if want {
			arrival = latest(arrival, now).Add(interval)
		}
		var got bool
		if level, got = bucket.Admit(level, now); got != want {
			t.Fatalf("request %d: admitted %v, want %v", i, got, want)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func TestClockThatGoesBackAdmitsNothingMore(t *testing.T) {
	bucket := LeakyBucket{Rate: 10, Capacity: 1}
	level, _ := bucket.Admit(Level{}, epoch)
	level, admitted := bucket.Admit(level, epoch.Add(-time.Hour))
	if admitted {
		t.Error("a request before the last one is admitted")
	}
	if _, admitted = bucket.Admit(level, epoch.Add(100*time.Millisecond)); !admitted {
		t.Error("the clock that went back delays the leak")
	}
}

func TestClockThatGoesBackAndForthLeaksNothing(t *testing.T) {
	bucket := LeakyBucket{Rate: 10, Capacity: 20}
	var level Level
	for range 20 {
		level, _ = bucket.Admit(level, epoch)
	}
	for i, now := range []time.Time{epoch, epoch.Add(-time.Hour), epoch, epoch.Add(-time.Second), epoch.Add(99 * time.Millisecond)} {
		var admitted bool
		if level, admitted = bucket.Admit(level, now); admitted {
			t.Errorf("request %d is admitted, at %s", i+1, now)
		}
	}
	if _, admitted := bucket.Admit(level, epoch.Add(100*time.Millisecond)); !admitted {
		t.Error("a request is refused after the time in which one leaks out")
	}
}

func TestEMARefusesABurstAndLearnsARate(t *testing.T) {
	for _, threshold := range []float64{2, 3, 4} {
		t.Run(fmt.Sprint(threshold), func(t *testing.T) {
			rule := EMA{Threshold: threshold}
			var state Gaps
			now := epoch
			step := func(gap time.Duration) (admitted bool) {
				now = now.Add(gap)
				state, admitted = rule.Admit(state, now)
				return admitted
			}
			for i := range 15 {
				if !step(5 * time.Second) {
					t.Errorf("regular request %d is refused", i+1)
				}
			}
			refused := 0
			for range 6 {
				if !step(50 * time.Millisecond) {
					refused++
				}
			}
			if refused == 0 {
				t.Error("a burst of 6 requests 50 ms apart, after 15 that were 5 s apart, is admitted whole")
			}
			for range 100 {
				step(50 * time.Millisecond)
			}
			for i := range 100 {
				if !step(50 * time.Millisecond) {
					t.Fatalf("request %d of a rate that lasts is refused", i+1)
				}
			}
		})
	}
}

func TestClientsAreAddressesAndIPv6Sites(t *testing.T) {
	tests := []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8:0:100::1", "2001:db8:0:1ff:ffff::2", true},
		{"2001:db8:0:100::1", "2001:db8:0:200::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	}
	for _, tc := range tests {
		l := PerClient(LeakyBucket{Rate: 1, Capacity: 1}.Admit)
		l.Admit(netip.MustParseAddr(tc.a), epoch)
		if same := !l.Admit(netip.MustParseAddr(tc.b), epoch); same != tc.same {
			t.Errorf("%s and %s: one client is %v, want %v", tc.a, tc.b, same, tc.same)
		}
	}
}

func TestClientsThatAreRememberedAreBounded(t *testing.T) {
	l := PerClient(LeakyBucket{Rate: 1, Capacity: 1}.Admit).(*perClient[Level])
	for i := range maxClients + 100 {
		l.Admit(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), epoch)
	}
	if n := l.states.Len(); n != 16_384 {
		t.Errorf("%d clients are remembered, want 16,384, as PerClient says", n)
	}
}

func BenchmarkLimiter(b *testing.B) {
	client := netip.MustParseAddr("192.0.2.1")
	for name, l := range map[string]Limiter{
		"leaky_bucket": PerClient(LeakyBucket{Rate: 10, Capacity: 20}.Admit),
		"ema":          PerClient(EMA{Threshold: 3}.Admit),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for now := epoch; b.Loop(); now = now.Add(time.Millisecond) {
				l.Admit(client, now)
			}
		})
	}
}
