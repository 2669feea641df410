package protocoltest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

func TestEveryWebRiskListFaultBreaksEveryAnswer(t *testing.T) {
	held := [][]byte{[]byte("aaaa"), []byte("aaaab"), []byte("bbbb"), []byte("cccccc")}
	situations := map[string]func(s *Server, copies map[string]*copyOf){
		"full":       func(_ *Server, copies map[string]*copyOf) { clear(copies) },
		"full, one":  func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", held[:1]) },
		"full, none": func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", nil) },
		"unchanged":  func(*Server, map[string]*copyOf) {},
		"addition":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", append(held, []byte("dddd"))) },
		"longer":     func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", append(held, []byte("ddddd"))) },
		"removal":    func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", held[1:]) },
		"raw":        func(s *Server, _ map[string]*copyOf) { s.SetRawAdditions(true); s.SetRawRemovals(true) },
		"JSON":       func(s *Server, _ map[string]*copyOf) { s.AnswerJSON(true); s.Publish("se-4b", held[1:]) },
		"all gone":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", nil) },
	}
	for fault, f := range ListFaultsWebRisk() {
		if f.Delay > 0 {
			continue // a good answer in the end
		}
		for situation, prepare := range situations {
			t.Run(fault+"/"+situation, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New(t)
					s.Publish("se-4b", held)
					copies := map[string]*copyOf{}
					if bad, err := diffRisk(t, s, copies, "se-4b"); err != nil || bad != nil {
						t.Fatal(bad, err)
					}
					time.Sleep(time.Hour)
					prepare(s, copies)
					s.Break("computeDiff", 1, f)
					bad, err := diffRisk(t, s, copies, "se-4b")
					if f.breaksRequest(&query{method: methodDiff}) && err == nil {
						t.Error("the request did not fail")
					}
					if !f.breaksRequest(&query{method: methodDiff}) && (err != nil || bad == nil) {
						t.Errorf("the list is not bad: %v", err)
					}
					time.Sleep(time.Hour) // and recovers
					if bad, err := diffRisk(t, s, copies, "se-4b"); err != nil || bad != nil {
						t.Error(bad, err)
					}
				})
			})
		}
	}
}

func TestEverySearchFaultBreaksASearchOfWebRisk(t *testing.T) {
	for fault, f := range SearchFaultsWebRisk() {
		if f.Delay > 0 {
			continue // a good answer in the end
		}
		inRiskBubble(t, fault, func(b *bench) {
			b.Break("search", 1, f)
			if _, err := searchRisk(t, b, entryA, "se-4b"); err == nil {
				b.Error("the answer is not broken")
			}
			time.Sleep(15 * time.Minute)
			if _, err := searchRisk(t, b, entryA, "se-4b"); err != nil {
				b.Error(err)
			}
			wantNone(b.T, b.violations.take())
		})
	}
}

// The client must obey a next diff in ten years, and may ask soon without one.
func TestOddNextDiffs(t *testing.T) {
	se := func(b *bench) { b.diff("se-4b") }
	odd := func(name string) func(b *bench) {
		return func(b *bench) {
			b.Break("", 1, OddDiffTimes()[name])
			se(b)
		}
	}
	notBefore(t, "far", "recommended next diff", farNextDiff, odd("next diff far away"), se)
	for name, want := range map[string]time.Duration{"no next diff": 0, "next diff in the past": -time.Hour, "next diff far away": farNextDiff} {
		inBubble(t, name, func(b *bench) {
			b.Break("update", 1, OddDiffTimes()[name])
			var m wrv1.ComputeThreatListDiffResponse
			if err := readRisk(b, politeRisk(b.T, diffPath, diffValues("se-4b", nil)), &m); err != nil {
				b.Fatal(err)
			}
			if _, err := applyRisk(nil, &m); err != nil {
				b.Error(err)
			}
			switch got := m.RecommendedNextDiff; {
			case want == 0 && got != nil, want != 0 && !got.AsTime().Equal(time.Now().Add(want)):
				b.Errorf("next diff %v, want %v from now", got, want)
			}
			wantNone(b.T, b.violations.take())
		})
	}
	for _, name := range []string{"no next diff", "next diff in the past"} {
		inBubble(t, name+", asked at once", func(b *bench) {
			odd(name)(b)
			se(b)
			wantNone(b.T, b.violations.take())
		})
		notBefore(t, name+", unchanged", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
			b.Break("", 2, OddDiffTimes()[name])
			se(b)
			b.diffWith("se-4b", b.version, nil)
		}, se)
	}
}

func TestOddExpireTimes(t *testing.T) {
	full := entryA + string(make([]byte, 28))
	type times struct{ positive, negative time.Duration } // 0: absent
	for name, want := range map[string]times{
		"no expire time":                   {0, 5 * time.Minute},
		"expire time in the past":          {-time.Hour, 5 * time.Minute},
		"no negative expire time":          {5 * time.Minute, 0},
		"negative expire time in the past": {5 * time.Minute, -time.Hour},
	} {
		inRiskBubble(t, name, func(b *bench) {
			b.AddFullHash([]byte(full), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
			b.Break("search", 1, OddSearchTimes()[name])
			m, err := searchRisk(t, b, entryA, "se-4b", "mw-4b")
			if err != nil || len(m.Threats) != 1 {
				b.Fatal(m, err)
			}
			at := func(d time.Duration) string {
				if d == 0 {
					return ""
				}
				return time.Now().Add(d).UTC().String()
			}
			got := [2]string{}
			for i, stamp := range []interface{ GetSeconds() int64 }{m.Threats[0].ExpireTime, m.NegativeExpireTime} {
				if stamp.GetSeconds() != 0 {
					got[i] = time.Unix(stamp.GetSeconds(), 0).UTC().String()
				}
			}
			if got != [2]string{at(want.positive), at(want.negative)} {
				b.Errorf("got %v, want %v from now", got, want)
			}
			b.risk(entryA) // what has expired, or does not say when, may be asked for again
			wantNone(b.T, b.violations.take())
		})
	}
}

// A fault that Web Risk has alone waits for a request of Web Risk, and one that it
// cannot show waits for another protocol.
func TestFaultsOfWebRiskSpareTheOthers(t *testing.T) {
	inRiskBubble(t, "of Web Risk", func(b *bench) {
		for _, f := range allOddTimes() {
			b.Break("", 1, f)
		}
		b.lists(nil, "se-4b")
		_ = b.search("aaaa")
		b.diff("se-4b")
		b.risk(entryB)
		var faults []bool
		for _, r := range b.Requests("")[2:] {
			faults = append(faults, r.Fault)
		}
		for i, fault := range faults {
			if fault != (i > 1) {
				b.Errorf("faults of %v, want of the last two", faults)
				break
			}
		}
	})
	for _, f := range []Fault{{ShortChecksum: true}, {NegativeFirstValue: true}, {LargeFirstValue: true}, {RaggedRaw: true},
		{UnsortedRaw: true}, {ShortPrefix: true}, {LongPrefix: true}, {NoResponseType: true}} {
		inBubble(t, "of its coding", func(b *bench) {
			b.Break("", 1, f)
			b.lists(nil, "se-4b")
			b.diff("se-4b")
			if got := b.Requests(""); got[0].Fault || !got[1].Fault {
				b.Errorf("%+v hit v5, or not Web Risk", f)
			}
		})
	}
	for _, tt := range []struct {
		fault Fault
		first func(b *bench) // is spared
		then  func(b *bench) // is hit
	}{
		{Fault{NoNextDiff: true}, func(b *bench) { b.risk(entryA) }, func(b *bench) { b.diff("se-4b") }},
		{Fault{NoExpireTime: true}, func(b *bench) { b.diff("se-4b") }, func(b *bench) { b.risk(entryA) }},
	} {
		inRiskBubble(t, "of the other method", func(b *bench) {
			b.Break("", 1, tt.fault)
			tt.first(b)
			tt.then(b)
			if got := b.Requests("")[2:]; got[0].Fault || !got[1].Fault {
				b.Errorf("%+v hit the first of %+v", tt.fault, got)
			}
		})
	}
	for _, f := range []Fault{{WrongName: true}, {WrongOrder: true}, {MissingList: true},
		{WrongWidth: true}, {NegativeWait: true}} {
		inBubble(t, "of the others", func(b *bench) {
			b.Break("", 1, f)
			b.diff("se-4b")
			if b.Requests("")[0].Fault {
				b.Errorf("%+v hit", f)
			}
		})
	}
}
