package protocoltest

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

func TestEveryV4ListFaultBreaksEveryAnswer(t *testing.T) {
	held := [][]byte{[]byte("aaaa"), []byte("aaaab"), []byte("bbbb"), []byte("cccccc")}
	situations := map[string]func(s *Server, copies map[string]*copyOf){
		"full":       func(_ *Server, copies map[string]*copyOf) { clear(copies) },
		"full, one":  func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", held[:1]) },
		"full, none": func(s *Server, copies map[string]*copyOf) { clear(copies); s.Publish("se-4b", nil) },
		"unchanged":  func(*Server, map[string]*copyOf) {},
		"omitted":    func(s *Server, _ map[string]*copyOf) { s.OmitUnchanged(true) },
		"addition":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", append(held, []byte("dddd"))) },
		"longer":     func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", append(held, []byte("ddddd"))) },
		"removal":    func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", held[1:]) },
		"all gone":   func(s *Server, _ map[string]*copyOf) { s.Publish("se-4b", nil) },
	}
	for fault, f := range ListFaultsV4() {
		if f.Delay > 0 {
			continue // a good answer in the end
		}
		for situation, prepare := range situations {
			t.Run(fault+"/"+situation, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New(t)
					names := []string{"se-4b", "mw-4b"}
					s.Publish("se-4b", held)
					s.Publish("mw-4b", [][]byte{[]byte("xxxx")})
					copies := map[string]*copyOf{}
					if bad, err := fetchV4(t, s, copies, nil, names...); err != nil || len(bad) > 0 {
						t.Fatal(bad, err)
					}
					time.Sleep(time.Hour)
					prepare(s, copies)
					s.Break("fetch", 1, f)
					bad, err := fetchV4(t, s, copies, nil, names...)
					if f.breaksRequest(&query{method: methodFetch}) && err == nil {
						t.Error("the request did not fail")
					}
					if !f.breaksRequest(&query{method: methodFetch}) && (err != nil || len(bad) != len(names)) {
						t.Errorf("bad lists %v of %q, %v", bad, names, err)
					}
					time.Sleep(time.Hour) // and recovers
					if refusesLists(f.Status) {
						for _, name := range names {
							if bad, err := fetchV4(t, s, copies, nil, name); err != nil || len(bad) > 0 {
								t.Error(bad, err)
							}
						}
						time.Sleep(time.Hour)
					}
					if bad, err := fetchV4(t, s, copies, nil, names...); err != nil || len(bad) > 0 {
						t.Error(bad, err)
					}
				})
			})
		}
	}
}

func TestEverySearchFaultBreaksAFind(t *testing.T) {
	for fault, f := range SearchFaultsV4() {
		if f.Delay > 0 {
			continue // a good answer in the end
		}
		inFindBubble(t, fault, func(b *bench) {
			b.Break("find", 1, f)
			if _, err := findV4(t, b, b.states(), []string{"se-4b"}, []string{entryA}, nil); err == nil {
				b.Error("the answer is not broken")
			}
			time.Sleep(15 * time.Minute)
			if _, err := findV4(t, b, b.states(), []string{"se-4b"}, []string{entryA}, nil); err != nil {
				b.Error(err)
			}
			wantNone(b.T, b.violations.take())
		})
	}
}

// A fault without sense in one protocol waits for a request of the other.
func TestFaultsOfOneProtocolSpareTheOther(t *testing.T) {
	v5 := []Fault{{WrongOrder: true}, {MissingList: true}, {WrongWidth: true}}
	v4 := []Fault{{V4: FaultV4{TwoAnswers: true}}, {ShortChecksum: true}, {NegativeFirstValue: true}, {LargeFirstValue: true}, {RaggedRaw: true},
		{UnsortedRaw: true}, {ShortPrefix: true}, {LongPrefix: true}, {NoResponseType: true}, {V4: FaultV4{NoCompression: true}}}
	try := func(name string, faults []Fault, spared, hit func(b *bench, copies map[string]*copyOf) (map[string]error, error)) {
		for _, f := range faults {
			inBubble(t, name, func(b *bench) {
				b.Break("", 1, f)
				if bad, err := spared(b, map[string]*copyOf{}); err != nil || len(bad) > 0 {
					b.Errorf("%+v hit: %v, %v", f, bad, err)
				}
				if bad, err := hit(b, map[string]*copyOf{}); err == nil && len(bad) == 0 {
					b.Errorf("%+v did not hit", f)
				}
			})
		}
	}
	useV5 := func(b *bench, copies map[string]*copyOf) (map[string]error, error) {
		return fetch(b.T, b, copies, nil, "se-4b", "mw-4b")
	}
	useV4 := func(b *bench, copies map[string]*copyOf) (map[string]error, error) {
		return fetchV4(b.T, b, copies, nil, "se-4b", "mw-4b")
	}
	try("of v5", v5, useV4, useV5)
	try("of v4", v4, useV5, useV4)
	inFindBubble(t, "contents spare find", func(b *bench) {
		b.Break("", 1, Fault{NegativeWait: true})
		if _, err := findV4(t, b, b.states(), []string{"se-4b"}, []string{entryA}, nil); err != nil {
			b.Error(err)
		}
	})
	inBubble(t, "one list", func(b *bench) {
		b.Break("", 1, Fault{NoResponseType: true, List: "mw-4b"})
		bad, err := useV4(b, map[string]*copyOf{})
		if err != nil || len(bad) != 1 || bad["mw-4b"] == nil {
			b.Errorf("bad lists %v, %v, want mw-4b", bad, err)
		}
	})
}

// Where it says so a fault breaks one rule alone: a client that does not look gets a
// list whose checksum is right.
func TestV4FaultsHaveTheChecksumOfTheCarelessReading(t *testing.T) {
	inBubble(t, "first value", func(b *bench) {
		b.Publish("se-4b", [][]byte{[]byte("aaaa"), []byte("bbbb")})
		for _, f := range []Fault{{NegativeFirstValue: true}, {LargeFirstValue: true}} {
			b.Break("fetch", 1, f)
			m := answerOf(b.T, b.Server, nil, "se-4b").ListUpdateResponses[0]
			m.Additions[0].RiceHashes.FirstValue = int64(uint32(m.Additions[0].RiceHashes.FirstValue))
			if _, err := applyV4(nil, m); err != nil {
				b.Errorf("%+v: %v", f, err)
			}
		}
		b.Break("fetch", 1, Fault{V4: FaultV4{NoCompression: true}})
		m := answerOf(b.T, b.Server, nil, "se-4b").ListUpdateResponses[0]
		m.Additions[0].CompressionType = sbv4.CompressionType_RICE
		if _, err := applyV4(nil, m); err != nil {
			b.Error(err)
		}
	})
}

func TestThreatListsMethod(t *testing.T) {
	inBubble(t, "published", func(b *bench) {
		b.Publish("pha-4b", nil)
		b.Publish("gc-32b", nil)
		var m sbv4.ListThreatListsResponse
		if err := read(b, polite(t, "/v4/threatLists", nil), &m); err != nil {
			b.Fatal(err)
		}
		var got []string
		for _, d := range m.ThreatLists {
			got = append(got, triple{d.ThreatType, d.PlatformType, d.ThreatEntryType}.list())
		}
		if len(got) != 3 || got[0] != "se-4b" || got[1] != "mw-4b" || got[2] != "pha-4b" {
			b.Errorf("lists %q", got)
		}
		wantNone(b.T, b.violations.take())
	})
}

func TestGarbageBodyIsRefused(t *testing.T) {
	for _, path := range []string{fetchPath, findPath} {
		inBubble(t, path, func(b *bench) {
			r := politeV4(t, path, &sbv4.ClientInfo{ClientId: "x"})
			r.Body = io.NopCloser(bytes.NewReader(garbage()))
			if err := read(b, r, &sbv4.ListThreatListsResponse{}); err == nil || err.Error() != "status 400" {
				b.Errorf("got %v, want status 400", err)
			}
			wantOne(b.T, b.violations.take(), "not the message")
		})
	}
}

func TestFaultsOfV4SpareWebRisk(t *testing.T) {
	for _, f := range []FaultV4{{TwoAnswers: true}, {NoCompression: true}} {
		inBubble(t, "of v4", func(b *bench) {
			b.Break("", 1, Fault{V4: f})
			b.diff("se-4b")
			b.fetch("se-4b")
			if got := b.Requests(""); got[0].Fault || !got[1].Fault {
				b.Errorf("%+v hit Web Risk, or not v4", f)
			}
		})
	}
}

func TestFaultsOfWebRiskSpareV4(t *testing.T) {
	inRiskBubble(t, "of Web Risk", func(b *bench) {
		for _, f := range allOddTimes() {
			b.Break("", 1, f)
		}
		b.lists(nil, "se-4b")
		b.fetch("se-4b", "mw-4b")
		_ = b.search("aaaa")
		b.find(entryA)
		b.diff("se-4b")
		b.risk(entryB)
		var faults []bool
		for _, r := range b.Requests("")[2:] {
			faults = append(faults, r.Fault)
		}
		for i, fault := range faults {
			if fault != (i > 3) {
				b.Errorf("faults of %v, want of the last two", faults)
				break
			}
		}
	})
}
