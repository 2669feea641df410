package lookup

import (
	"context"
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

// decideWith decides about a name, for a server block that blocks FRAME_ONLY or lets
// it pass.
func decideWith(t *testing.T, c *Checker, qname string, frames Frames) Decision {
	t.Helper()
	decision, candidates := c.CheckWith(FromQname(qname), frames)
	if candidates == nil {
		return decision
	}
	return c.Confirm(candidates, nil).Wait(t.Context())
}

func TestFrameOnlyThreatsBlockUnlessTheyMayPass(t *testing.T) {
	const name, parent = "www.example.com/", "example.com/"
	outcome := func(v Verdict, threat Threat, expression string, frameOnly bool) Decision {
		return Decision{Verdict: v, Threat: threat, Expression: expression, FrameOnly: frameOnly}
	}
	tests := []struct {
		name          string
		threats       []ThreatHash
		block, passed Decision
	}{
		{"none", nil, Decision{}, Decision{}},
		{"not marked", []ThreatHash{isThreat(name, Malware)},
			outcome(Unsafe, Malware, name, false), outcome(Unsafe, Malware, name, false)},
		{"marked", []ThreatHash{inFrames(isThreat(name, Malware))},
			outcome(Unsafe, Malware, name, true), outcome(Safe, NoThreat, "", true)},
		{"marked, then not, in one full hash", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(name, SocialEngineering)},
			outcome(Unsafe, SocialEngineering, name, false), outcome(Unsafe, SocialEngineering, name, false)},
		{"not marked, then marked, in one full hash", []ThreatHash{isThreat(name, SocialEngineering), inFrames(isThreat(name, Malware))},
			outcome(Unsafe, SocialEngineering, name, false), outcome(Unsafe, SocialEngineering, name, false)},
		{"a domain that is marked, of a name that is not", []ThreatHash{isThreat(name, Malware), inFrames(isThreat(parent, Malware))},
			outcome(Unsafe, Malware, name, false), outcome(Unsafe, Malware, name, false)},
		{"a name that is marked, in a domain that is not", []ThreatHash{inFrames(isThreat(name, Malware)), isThreat(parent, Malware)},
			outcome(Unsafe, Malware, name, true), outcome(Unsafe, Malware, parent, false)},
		{"a threat that nobody wants to be protected from", []ThreatHash{isThreat(name, UnwantedSoftware), inFrames(isThreat(name, Malware))},
			outcome(Unsafe, Malware, name, true), outcome(Safe, NoThreat, "", true)},
		{"a marked threat that nobody wants to be protected from", []ThreatHash{inFrames(isThreat(name, UnwantedSoftware))}, Decision{}, Decision{}},
	}
	for _, tt := range tests {
		for frames, want := range map[Frames]Decision{BlockFrames: tt.block, PassFrames: tt.passed} {
			srv := &server{t: t}
			srv.knows(time.Hour, tt.threats...)
			c := checkerOf(t, Config{Searcher: srv, Threats: Threats(0).With(Malware).With(SocialEngineering)}, name, parent)
			for _, by := range []Decider{ByServer, ByCache} {
				got := decideWith(t, c, "www.example.com.", frames)
				if want.By = by; want.Verdict == Unsafe {
					want.List, want.Expires = "list", got.Expires
				}
				if got != want {
					t.Errorf("%s, frames %d: got %+v, want %+v", tt.name, frames, got, want)
				}
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
					d := decideWith(t, c, "www.example.com.", BlockFrames)
					if d.By != by || !slices.Equal(d.Threats(), tc.want) || time.Until(d.Expires) != tc.lasts {
						t.Errorf("Expected %v for %v by %v, got %v for %v in %+v", tc.want, tc.lasts, by, d.Threats(), time.Until(d.Expires), d)
					}
				}
			})
		})
	}
}

// A threat that may pass must not stop the other candidates from being confirmed.
func TestAPassingThreatInTheCacheDoesNotEndTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(time.Hour, inFrames(isThreat("example.com/", Malware)), isThreat("www.example.com/", SocialEngineering))
		c := checkerOf(t, Config{Searcher: srv}, "example.com/", "www.example.com/")
		if got := decideWith(t, c, "example.com.", PassFrames); got != (Decision{By: ByServer, FrameOnly: true}) {
			t.Errorf("the domain: %+v, want it to pass, marked", got)
		}
		if got := decideWith(t, c, "www.example.com.", PassFrames); got.Verdict != Unsafe || got.FrameOnly || got.Expression != "www.example.com/" {
			t.Errorf("the name below: %+v, want it unsafe for itself", got)
		}

		srv.OnSearch = func(ctx context.Context, _ []Prefix) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}
		database := new(Database)
		database.Publish([]List{listOf("list", "ftp.example.com/")})
		c.database = database
		want := Decision{Verdict: Unsure, By: ByTimeout, List: "list", Err: context.DeadlineExceeded, FrameOnly: true}
		if got := decideWith(t, c, "ftp.example.com.", PassFrames); got != want {
			t.Errorf("another name, not confirmed: %+v, want %+v", got, want)
		}
		database.Publish(nil)
		if got := decideWith(t, c, "example.com.", PassFrames); got != (Decision{By: ByCache, FrameOnly: true}) {
			t.Errorf("without lists: %+v, want it to pass, marked", got)
		}
		if got := decideWith(t, c, "example.com.", BlockFrames); got.Verdict != Unsafe || got.By != ByCache || !got.FrameOnly {
			t.Errorf("without lists, to be blocked: %+v, want unsafe, marked", got)
		}
	})
}
