package protocoltest

import (
	"context"
	"testing"
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

func fetchSE(b *bench) { b.fetch("se-4b") }
func fetchMW(b *bench) { b.fetch("mw-4b") }

// What version 4 shares with version 5, the clock of a list and the growth of a back-off, is in
// TestRefereeReportsRequestsTooEarly.
func TestRefereeReportsFetchesTooEarly(t *testing.T) {
	notBefore(t, "minimum wait of the method", "minimum wait", time.Hour, fetchSE, fetchMW)
	notBefore(t, "set for the method", "minimum wait", 2*time.Hour, func(b *bench) { b.SetFetchWait(2 * time.Hour); fetchSE(b) }, fetchMW)
	notBefore(t, "the shortest of the lists", "minimum wait", time.Minute, func(b *bench) { b.SetMinimumWait("mw-4b", time.Minute); b.fetch("se-4b", "mw-4b") }, fetchSE)
	notBefore(t, "minimum wait after restart", "minimum wait", time.Hour, func(b *bench) { fetchSE(b); b.ClientStarted() }, fetchSE)
	notBefore(t, "failure before a restart", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{Status: 503}); fetchSE(b); b.ClientStarted() }, fetchMW)
	for _, f := range []Fault{{WrongName: true}, {V4: FaultV4{TwoAnswers: true}}, {NegativeWait: true}} {
		notBefore(t, "bad frame", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, f); fetchSE(b) }, fetchMW)
	}
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("", time.Minute)
		b.SetFetchWait(time.Minute)
		b.Break("fetch", 2, Fault{ShortChecksum: true, List: "se-4b"})
		b.fetch("se-4b", "mw-4b")
		time.Sleep(15 * time.Minute)
		fetchSE(b)
	}, fetchSE)
	notBefore(t, "no change, no wait", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		fetchSE(b)
		b.fetchWith(b.version, nil, "se-4b")
	}, fetchSE)
	judged(t, inBubble, act{"one unchanged list beside a changed one", func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		b.fetch("se-4b", "mw-4b")
		b.fetchWith(b.version, nil, "se-4b", "mw-4b") // mw-4b is sent in full again
		fetchSE(b)
	}, ""})
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
	notBefore(t, "time-out", "back-off", 15*time.Minute, timeOut, fetchSE)
	failedBefore := func(do func(b *bench)) func(b *bench) {
		return func(b *bench) {
			fetchMW(b)
			time.Sleep(time.Hour)
			b.Break("", 3, Fault{Status: 500})
			do(b)
			time.Sleep(15 * time.Minute)
			do(b)
			b.ClientCancelled() // the second counts for nothing
			do(b)
		}
	}
	notBefore(t, "one of three fetches", "back-off", 30*time.Minute, failedBefore(fetchSE), fetchSE)
	find := func(b *bench) { b.findIn(b.states()[1:], []string{"mw-4b"}, entryM) }
	notBefore(t, "one of three finds", "back-off", 30*time.Minute, failedBefore(find), find)
	judged(t, inBubble,
		act{"told afterwards", func(b *bench) { timeOut(b); b.ClientCancelled(); fetchSE(b) }, ""},
		act{"wiped disk", func(b *bench) { timeOut(b); time.Sleep(15 * time.Minute); fetchSE(b); b.ClientLostState(); fetchSE(b) }, ""})
}

func TestRefereeReportsParallelFetches(t *testing.T) {
	judged(t, inBubble,
		act{"two", func(b *bench) {
			end := b.meanwhile("fetch", Fault{}, fetchSE)
			se(b)
			b.want("")
			fetchMW(b)
			end()
		}, "under way"},
		act{"the first by a client that died", func(b *bench) {
			end := b.meanwhile("fetch", Fault{}, fetchSE)
			b.ClientStarted()
			fetchMW(b)
			end()
		}, ""})
}

// States that were right once are judged as versions are, see TestRefereeReportsWrongVersions.
func TestRefereeReportsWrongStates(t *testing.T) {
	again := func(state func(b *bench) []byte, names ...string) func(b *bench) {
		return func(b *bench) { b.fetchWith(state(b), nil, names...) }
	}
	newest := func(b *bench) []byte { return b.version }
	twice := func(b *bench, state []byte) {
		b.fetchWith(state, nil, "se-4b")
		time.Sleep(time.Hour)
		b.fetchWith(state, nil, "se-4b")
	}
	judged(t, func(t *testing.T, name string, f func(b *bench)) {
		inBubble(t, name, func(b *bench) { fetchSE(b); time.Sleep(time.Hour); f(b) })
	},
		act{"newest", again(newest, "se-4b"), ""},
		act{"absent", fetchSE, ""},
		act{"unknown", again(func(*bench) []byte { return []byte{1} }, "se-4b"), "never served"},
		act{"of another list", again(newest, "mw-4b"), "was sent for"},
		act{"crosswise", again(newest, "mw-4b", "se-4b"), "was sent for"},
		act{"old", func(b *bench) { b.Publish("se-4b", nil); twice(b, b.version) }, "want the newest"},
		act{"after bad content", func(b *bench) { b.Break("fetch", 1, Fault{NoResponseType: true}); twice(b, b.version) }, "last update was bad"},
		act{"in v5", func(b *bench) { b.ClientStarted(); b.lists([][]byte{b.version}, "se-4b") }, ""},
		act{"left out of the answer", func(b *bench) { b.OmitUnchanged(true); twice(b, b.version) }, ""})
}

func TestRefereeReportsMalformedFetches(t *testing.T) {
	type part = sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest
	list := func(change func(l *part)) func(m *sbv4.FetchThreatListUpdatesRequest) {
		return func(m *sbv4.FetchThreatListUpdatesRequest) { change(m.ListUpdateRequests[0]) }
	}
	for _, tt := range []struct {
		name   string
		change func(m *sbv4.FetchThreatListUpdatesRequest)
		rule   string // empty: legal
		status int
	}{
		{"legal", nil, "", 200},
		{"limits", list(func(l *part) { l.Constraints.MaxDatabaseEntries, l.Constraints.MaxUpdateEntries = 1<<10, 1<<20 }), "", 200},
		{"no list", func(m *sbv4.FetchThreatListUpdatesRequest) { m.ListUpdateRequests = nil }, "no list", 400},
		{"list twice", func(m *sbv4.FetchThreatListUpdatesRequest) {
			m.ListUpdateRequests = append(m.ListUpdateRequests, proto.CloneOf(m.ListUpdateRequests[0]))
		}, "more than once", 400},
		{"no threat type", list(func(l *part) { l.ThreatType = 0 }), "three types", 400},
		{"no platform type", list(func(l *part) { l.PlatformType = 0 }), "three types", 400},
		{"no entry type", list(func(l *part) { l.ThreatEntryType = 0 }), "three types", 400},
		{"unknown combination", list(func(l *part) { l.PlatformType = sbv4.PlatformType_WINDOWS }), "", 400},
		{"unpublished list", func(m *sbv4.FetchThreatListUpdatesRequest) { m.ListUpdateRequests[0] = request("pha-4b", nil) }, "", 400},
		{"no RICE", list(func(l *part) { l.Constraints.SupportedCompressions = []sbv4.CompressionType{sbv4.CompressionType_RAW} }), "compressions", 200},
		{"no constraints", list(func(l *part) { l.Constraints = nil }), "compressions", 200},
		{"no power of two", list(func(l *part) { l.Constraints.MaxDatabaseEntries = 5000 }), "max_database_entries", 400},
		{"too large a power of two", list(func(l *part) { l.Constraints.MaxDatabaseEntries = 1 << 21 }), "max_database_entries", 400},
		{"small update", list(func(l *part) { l.Constraints.MaxUpdateEntries = 10 }), "", 400},
		{"no client id", func(m *sbv4.FetchThreatListUpdatesRequest) { m.Client.ClientId = "" }, "client_id", 200},
		{"no client version", func(m *sbv4.FetchThreatListUpdatesRequest) { m.Client.ClientVersion = "" }, "client_id", 200},
		{"no client", func(m *sbv4.FetchThreatListUpdatesRequest) { m.Client = nil }, "client_id", 200},
	} {
		inBubble(t, tt.name, func(b *bench) {
			b.fetchWith(nil, tt.change, "se-4b")
			b.want(tt.rule)
			if got := b.Requests("fetch")[0].Status; got != tt.status {
				b.Errorf("status %d, want %d", got, tt.status)
			}
		})
	}
}
