package protocoltest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// fetch fetches lists without states; the answer may be bad.
func (b *bench) fetch(names ...string) { b.fetchWith(nil, nil, names...) }

// fetchWith fetches lists, the first with this state, by a request that change may
// still change.
func (b *bench) fetchWith(state []byte, change func(*sbv4.FetchThreatListUpdatesRequest), names ...string) {
	m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo()}
	for _, name := range names {
		m.ListUpdateRequests = append(m.ListUpdateRequests, request(name, state))
		state = nil
	}
	if change != nil {
		change(m)
	}
	var answer sbv4.FetchThreatListUpdatesResponse
	if read(b, politeV4(b.T, fetchPath, m), &answer) == nil && len(answer.ListUpdateResponses) > 0 {
		b.version = answer.ListUpdateResponses[len(answer.ListUpdateResponses)-1].NewClientState
	}
}

func TestRefereeReportsFetchesTooEarly(t *testing.T) {
	se := func(b *bench) { b.fetch("se-4b") }
	mw := func(b *bench) { b.fetch("mw-4b") }
	notBefore(t, "minimum wait of the method", "minimum wait", time.Hour, se, mw)
	notBefore(t, "set for the method", "minimum wait", 2*time.Hour,
		func(b *bench) { b.SetFetchWait(2 * time.Hour); se(b) }, mw)
	notBefore(t, "the shortest of the lists", "minimum wait", time.Minute,
		func(b *bench) { b.SetMinimumWait("mw-4b", time.Minute); b.fetch("se-4b", "mw-4b") }, se)
	notBefore(t, "minimum wait after restart", "minimum wait", time.Hour,
		func(b *bench) { se(b); b.ClientStarted() }, se)
	notBefore(t, "one failure", "back-off", 15*time.Minute,
		func(b *bench) { b.Break("", 1, Fault{Status: 503}); se(b) }, mw)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute,
		func(b *bench) { b.Break("", 1, Fault{Status: 503}); se(b); b.ClientStarted() }, mw)
	notBefore(t, "ten failures", "back-off", 24*time.Hour, func(b *bench) {
		b.Break("fetch", 10, Fault{CloseConnection: true})
		for n := range 10 {
			se(b)
			if n < 9 {
				time.Sleep(min(15*time.Minute<<n, 24*time.Hour))
			}
		}
	}, se)
	for _, f := range []Fault{{WrongName: true}, {V4: FaultV4{TwoAnswers: true}}, {NegativeWait: true}} {
		notBefore(t, "bad frame", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, f); se(b) }, mw)
	}
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("", time.Minute)
		b.SetFetchWait(time.Minute)
		b.Break("fetch", 2, Fault{ShortChecksum: true, List: "se-4b"})
		b.fetch("se-4b", "mw-4b")
		time.Sleep(15 * time.Minute)
		se(b)
	}, se)
	notBefore(t, "no change, no wait", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		se(b)
		b.fetchWith(b.version, nil, "se-4b")
	}, se)
	notBefore(t, "at once too often", ourFloor+", no minimum wait", time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		for range 33 {
			b.ForgetVersions("se-4b")
			se(b)
		}
	}, se)
}

func TestRefereeKeepsTheClocksOfMethodsApart(t *testing.T) {
	inBubble(t, "fetch and find", func(b *bench) {
		b.fetch("se-4b", "mw-4b")
		b.Break("find", 1, Fault{Status: 500})
		b.find("\x01\x02\x03\x04")
		b.lists(nil, "se-4b")
		_ = b.search("aaaa")
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "one unchanged list beside a changed one", func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		b.fetch("se-4b", "mw-4b")
		b.fetchWith(b.version, nil, "se-4b", "mw-4b") // mw-4b is sent in full again
		b.fetch("se-4b")
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeForgivesCancelledFetches(t *testing.T) {
	timeOut := func(b *bench) {
		b.Break("fetch", 1, Fault{Delay: time.Hour})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo(), ListUpdateRequests: []*listRequest{request("se-4b", nil)}}
		if _, err := b.RoundTrip(politeV4(b.T, fetchPath, m).WithContext(ctx)); err == nil {
			b.Error("a slow answer came in time")
		}
	}
	notBefore(t, "time-out", "back-off", 15*time.Minute, timeOut, func(b *bench) { b.fetch("se-4b") })
	inBubble(t, "told afterwards", func(b *bench) {
		timeOut(b)
		b.ClientCancelled()
		b.fetch("se-4b")
		wantNone(b.T, b.violations.take())
	})
	failedBefore := func(act func(b *bench)) func(b *bench) {
		return func(b *bench) {
			b.fetch("mw-4b")
			time.Sleep(time.Hour)
			b.Break("", 3, Fault{Status: 500})
			act(b)
			time.Sleep(15 * time.Minute)
			act(b)
			b.ClientCancelled() // the second counts for nothing
			act(b)
		}
	}
	se := func(b *bench) { b.fetch("se-4b") }
	notBefore(t, "one of three fetches", "back-off", 30*time.Minute, failedBefore(se), se)
	find := func(b *bench) {
		_, _ = findV4(b.T, b, b.states()[1:], []string{"mw-4b"}, []string{entryM}, nil)
	}
	notBefore(t, "one of three finds", "back-off", 30*time.Minute, failedBefore(find), find)
	inBubble(t, "wiped disk", func(b *bench) {
		timeOut(b)
		time.Sleep(15 * time.Minute)
		b.fetch("se-4b")
		b.ClientLostState()
		b.fetch("se-4b")
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsParallelFetches(t *testing.T) {
	inBubble(t, "two", func(b *bench) {
		b.Break("fetch", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); b.fetch("se-4b") }()
		synctest.Wait()
		other := &bench{T: b.T, Server: b.Server}
		other.lists(nil, "se-4b")
		wantNone(b.T, b.violations.take())
		other.fetch("mw-4b")
		<-done
		wantOne(b.T, b.violations.take(), "under way")
	})
	inBubble(t, "the first by a client that died", func(b *bench) {
		b.Break("fetch", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); b.fetch("se-4b") }()
		synctest.Wait()
		b.ClientStarted()
		other := &bench{T: b.T, Server: b.Server}
		other.fetch("mw-4b")
		<-done
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsWrongStates(t *testing.T) {
	again := func(state func(b *bench) []byte, names ...string) func(b *bench) {
		return func(b *bench) { b.fetchWith(state(b), nil, names...) }
	}
	newest := func(b *bench) []byte { return b.version }
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"newest", again(newest, "se-4b"), ""},
		{"absent", again(func(*bench) []byte { return nil }, "se-4b"), ""},
		{"unknown", again(func(*bench) []byte { return []byte{1} }, "se-4b"), "never served"},
		{"of another list", again(newest, "mw-4b"), "was sent for"},
		{"crosswise", again(newest, "mw-4b", "se-4b"), "was sent for"},
		{"old", func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.fetchWith(old, nil, "se-4b")
			time.Sleep(time.Hour)
			b.fetchWith(old, nil, "se-4b")
		}, "want the newest"},
		{"old after a restart", func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.fetchWith(old, nil, "se-4b")
			b.ClientStarted()
			time.Sleep(time.Hour)
			b.fetchWith(old, nil, "se-4b")
		}, ""},
		{"after bad content", func(b *bench) {
			b.Break("fetch", 1, Fault{NoResponseType: true})
			old := b.version
			b.fetchWith(old, nil, "se-4b")
			time.Sleep(time.Hour)
			b.fetchWith(old, nil, "se-4b")
		}, "last update was bad"},
		{"of a bad answer", func(b *bench) {
			b.Break("fetch", 1, Fault{RaggedRaw: true})
			b.Publish("se-4b", nil)
			b.fetchWith(b.version, nil, "se-4b")
			time.Sleep(time.Hour)
			b.fetchWith(b.version, nil, "se-4b")
		}, "had to be refused"},
		{"in v5", func(b *bench) { b.ClientStarted(); b.lists([][]byte{b.version}, "se-4b") }, ""},
		{"left out of the answer", func(b *bench) {
			b.OmitUnchanged(true)
			b.fetchWith(b.version, nil, "se-4b")
			time.Sleep(time.Hour)
			b.fetchWith(b.version, nil, "se-4b")
		}, ""},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.fetch("se-4b")
			time.Sleep(time.Hour)
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}

func TestRefereeReportsMalformedFetches(t *testing.T) {
	type message = sbv4.FetchThreatListUpdatesRequest
	tests := []struct {
		name   string
		change func(m *message)
		rule   string // empty: legal
		status int
	}{
		{"legal", nil, "", 200},
		{"limits", func(m *message) {
			m.ListUpdateRequests[0].Constraints.MaxDatabaseEntries = 1 << 10
			m.ListUpdateRequests[0].Constraints.MaxUpdateEntries = 1 << 20
		}, "", 200},
		{"no list", func(m *message) { m.ListUpdateRequests = nil }, "no list", 400},
		{"list twice", func(m *message) {
			m.ListUpdateRequests = append(m.ListUpdateRequests, proto.CloneOf(m.ListUpdateRequests[0]))
		}, "more than once", 400},
		{"no threat type", func(m *message) { m.ListUpdateRequests[0].ThreatType = 0 }, "three types", 400},
		{"no platform type", func(m *message) { m.ListUpdateRequests[0].PlatformType = 0 }, "three types", 400},
		{"no entry type", func(m *message) { m.ListUpdateRequests[0].ThreatEntryType = 0 }, "three types", 400},
		{"unknown combination", func(m *message) { m.ListUpdateRequests[0].PlatformType = sbv4.PlatformType_WINDOWS }, "", 400},
		{"unpublished list", func(m *message) { m.ListUpdateRequests[0] = request("pha-4b", nil) }, "", 400},
		{"no RICE", func(m *message) {
			m.ListUpdateRequests[0].Constraints.SupportedCompressions = []sbv4.CompressionType{sbv4.CompressionType_RAW}
		}, "compressions", 200},
		{"no constraints", func(m *message) { m.ListUpdateRequests[0].Constraints = nil }, "compressions", 200},
		{"no power of two", func(m *message) { m.ListUpdateRequests[0].Constraints.MaxDatabaseEntries = 5000 }, "max_database_entries", 400},
		{"too large a power of two", func(m *message) { m.ListUpdateRequests[0].Constraints.MaxDatabaseEntries = 1 << 21 }, "max_database_entries", 400},
		{"small update", func(m *message) { m.ListUpdateRequests[0].Constraints.MaxUpdateEntries = 10 }, "", 400},
		{"no client id", func(m *message) { m.Client.ClientId = "" }, "client_id", 200},
		{"no client version", func(m *message) { m.Client.ClientVersion = "" }, "client_id", 200},
		{"no client", func(m *message) { m.Client = nil }, "client_id", 200},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.fetchWith(nil, tt.change, "se-4b")
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
			if got := b.Requests("fetch")[0].Status; got != tt.status {
				b.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}
