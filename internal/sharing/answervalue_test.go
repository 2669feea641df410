package sharing

import (
	"reflect"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func hashOf(expression string) lookup.FullHash { return lookup.HashExpression(expression) }

func sample() (lookup.Prefix, answer) {
	at := time.UnixMilli(1_800_000_000_123)
	return hashOf("bad.example/").Prefix(4), answer{byRedis: at, byWriter: at.Add(time.Second), ttl: 5 * time.Minute, threats: []lookup.ThreatHash{
		{Hash: hashOf("bad.example/"), Threats: lookup.Threats(0).With(lookup.Malware), TTL: 5 * time.Minute},
		{Hash: hashOf("bad.example/"), Threats: lookup.Threats(0).With(lookup.SocialEngineering), TTL: time.Minute, FrameOnly: true},
	}}
}

func TestAValueIsReadAsItWasWritten(t *testing.T) {
	p, want := sample()
	for _, want := range []answer{want, {byRedis: want.byRedis, byWriter: want.byWriter, ttl: time.Hour}} {
		got, ok, newer := decode(p, want.encode(p))
		if !ok || newer || !reflect.DeepEqual(got, want) {
			t.Errorf("Expected %+v, got %+v, %t, %t", want, got, ok, newer)
		}
	}
}

func TestADamagedValueIsNotBelieved(t *testing.T) {
	p, a := sample()
	value := a.encode(p)
	for i := range value {
		for bit := range 8 {
			damaged := append([]byte(nil), value...)
			damaged[i] ^= 1 << bit
			if _, ok, newer := decode(p, damaged); ok || newer {
				t.Fatalf("Byte %d, bit %d: expected no answer, got %t, newer %t", i, bit, ok, newer)
			}
		}
		if _, ok, _ := decode(p, value[:i]); ok {
			t.Fatalf("Expected no answer in the first %d bytes", i)
		}
	}
	if _, ok, _ := decode(hashOf("other.example/").Prefix(4), value); ok {
		t.Error("Expected no answer in the value of another prefix")
	}
}

// A value that is valid may still be absurd.
func TestBoundsOfAValue(t *testing.T) {
	p, content := sample()
	content.threats = make([]lookup.ThreatHash, maxThreats)
	if _, ok, _ := decode(p, content.encode(p)); !ok {
		t.Errorf("Expected an answer with %d threats", maxThreats)
	}
	content.threats = make([]lookup.ThreatHash, maxThreats+1)
	if _, ok, newer := decode(p, content.encode(p)); ok || newer {
		t.Errorf("Expected no answer with %d threats", maxThreats+1)
	}
	for _, tt := range []struct{ ttl, want time.Duration }{{-time.Hour, 0}, {1 << 62, 24 * time.Hour}} {
		got, ok, _ := decode(p, answer{ttl: tt.ttl, threats: []lookup.ThreatHash{{TTL: tt.ttl}}}.encode(p))
		if !ok || got.ttl != tt.want || got.threats[0].TTL != tt.want {
			t.Errorf("Expected a TTL of %s instead of %s, got %+v", tt.want, tt.ttl, got)
		}
	}
}

func TestLifeAndAge(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	threat := func(ttl time.Duration) []lookup.ThreatHash { return []lookup.ThreatHash{{TTL: ttl}} }
	for _, tt := range []struct {
		name            string
		a               answer
		redis, now      time.Duration // since received
		life, wantedAge time.Duration
	}{
		{"no threat", answer{ttl: 24 * time.Hour}, time.Minute, time.Minute, 24 * time.Hour, time.Minute},
		{"no threat for a week", answer{ttl: 7 * 24 * time.Hour}, 0, 0, 24 * time.Hour, 0},
		{"a threat", answer{ttl: 24 * time.Hour, threats: threat(24 * time.Hour)}, 0, 0, 29*time.Minute + 50*time.Second, 0},
		{"a short threat", answer{ttl: time.Hour, threats: threat(time.Minute)}, 0, 0, time.Minute, 0},
		{"the reader's clock is ahead", answer{}, time.Second, time.Minute, 0, time.Minute},
		{"the reader's clock is behind", answer{}, time.Minute, -time.Second, 0, time.Minute},
		{"another Redis whose clock is behind", answer{}, -time.Hour, time.Minute, 0, time.Minute},
		{"received in the future", answer{}, -time.Hour, -time.Hour, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.a.byRedis, tt.a.byWriter = at, at
			if got := tt.a.life(); got != tt.life {
				t.Errorf("Expected a life of %s, got %s", tt.life, got)
			}
			if got := tt.a.age(at.Add(tt.redis), at.Add(tt.now)); got != tt.wantedAge {
				t.Errorf("Expected an age of %s, got %s", tt.wantedAge, got)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	p, a := sample()
	f.Add(string(p), a.encode(p))
	f.Fuzz(func(t *testing.T, prefix string, value []byte) {
		a, ok, _ := decode(lookup.Prefix(prefix), value)
		if ok && string(a.encode(lookup.Prefix(prefix))) != string(value) && len(a.threats) == 0 {
			t.Errorf("Expected %x, got %x", value, a.encode(lookup.Prefix(prefix)))
		}
	})
}
