package lookup

import (
	"context"
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
