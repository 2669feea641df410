package lookup

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// inFrames marks a threat FRAME_ONLY.
func inFrames(t ThreatHash) ThreatHash {
	t.FrameOnly = true
	return t
}

func TestFrameOnlyThreatsBlockAndAreMarked(t *testing.T) {
	const name, parent = "www.example.com/", "example.com/"
	outcome := func(threat Threat, expression string, frameOnly bool) Decision {
		return Decision{Verdict: Unsafe, Threat: threat, Expression: expression, FrameOnly: frameOnly}
	}
	tests := []struct {
		name    string
		threats []ThreatHash
		want    Decision
	}{
		{"none", nil, Decision{}},
		{"not marked", []ThreatHash{isThreat(name, Malware)}, outcome(Malware, name, false)},
		{"marked", []ThreatHash{inFrames(isThreat(name, Malware))}, outcome(Malware, name, true)},
		{"marked, then not, in one full hash", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(name, SocialEngineering)},
			outcome(SocialEngineering, name, false)},
		{"not marked, then marked, in one full hash", []ThreatHash{isThreat(name, SocialEngineering), inFrames(isThreat(name, Malware))},
			outcome(SocialEngineering, name, false)},
		{"a domain that is marked, of a name that is not", []ThreatHash{isThreat(name, Malware), inFrames(isThreat(parent, Malware))},
			outcome(Malware, name, false)},
		{"a name that is marked, in a domain that is not", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(parent, Malware)},
			outcome(Malware, name, true)},
		{"a threat that nobody wants to be protected from", []ThreatHash{isThreat(name, UnwantedSoftware), inFrames(isThreat(name, Malware))},
			outcome(Malware, name, true)},
		{"a marked threat that nobody wants to be protected from", []ThreatHash{inFrames(isThreat(name, UnwantedSoftware))}, Decision{}},
	}
	for _, tt := range tests {
		srv := &server{t: t}
		srv.knows(time.Hour, tt.threats...)
		c := checkerOf(t, Config{Searcher: srv, Threats: Threats(0).With(Malware).With(SocialEngineering)}, name, parent)
		for _, by := range []Decider{ByServer, ByCache} {
			got, want := decide(t, c, "www.example.com."), tt.want
			if want.By = by; want.Verdict == Unsafe {
				want.List, want.Expires = "list", got.Expires
			}
			if got != want {
				t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
			}
		}
	}
}

// Version 4 and Web Risk name each threat of a full hash in an entry of its own, version 5 all in
// one.
func TestADecisionNamesAllThreatsOfItsExpression(t *testing.T) {
	const name = "www.example.com/"
	lasting := func(h ThreatHash, ttl time.Duration) ThreatHash {
		h.TTL = ttl
		return h
	}
	both := isThreat(name, Malware)
	both.Threats = both.Threats.With(SocialEngineering)
	for _, tc := range []struct {
		name    string
		threats []ThreatHash
		want    []Threat
		lasts   time.Duration
	}{
		{"one", []ThreatHash{lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
		{"two in one entry", []ThreatHash{lasting(both, time.Minute)}, []Threat{Malware, SocialEngineering}, time.Minute},
		{"two in two entries, until the first ends", []ThreatHash{lasting(isThreat(name, SocialEngineering), time.Minute), lasting(isThreat(name, Malware), time.Second)}, []Threat{Malware, SocialEngineering}, time.Second},
		{"one that is marked FRAME_ONLY, besides another", []ThreatHash{inFrames(isThreat(name, Malware)), lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
		{"one that is not asked for, besides another", []ThreatHash{isThreat(name, UnwantedSoftware), lasting(isThreat(name, SocialEngineering), time.Minute)}, []Threat{SocialEngineering}, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{t: t}
				srv.knows(time.Hour, tc.threats...)
				c := checkerOf(t, Config{Searcher: srv, Threats: Threats(0).With(Malware).With(SocialEngineering)}, name)
				for _, by := range []Decider{ByServer, ByCache} {
					d := decide(t, c, "www.example.com.")
					if d.By != by || !slices.Equal(d.Threats(), tc.want) || time.Until(d.Expires) != tc.lasts {
						t.Errorf("Expected %v for %v by %v, got %v for %v in %+v", tc.want, tc.lasts, by, d.Threats(), time.Until(d.Expires), d)
					}
				}
			})
		})
	}
}
