package protocoltest

import (
	"bytes"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	fetchPath = "/v4/threatListUpdates:fetch"
	findPath  = "/v4/fullHashes:find"
)

type (
	fetchRequest = sbv4.FetchThreatListUpdatesRequest
	listRequest  = sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest
	findRequest  = sbv4.FindFullHashesRequest
)

// politeV4 returns a request that breaks no rule of form.
func politeV4(t testing.TB, path string, m proto.Message) *http.Request {
	t.Helper()
	body, err := proto.Marshal(m)
	testkit.Must(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://sb.test"+path+"?alt=proto", bytes.NewReader(body))
	testkit.Must(t, err)
	r.Header.Set("User-Agent", "reference/1")
	r.Header.Set("Content-Type", "application/x-protobuf")
	return r
}

func clientInfo() *sbv4.ClientInfo {
	return &sbv4.ClientInfo{ClientId: "reference", ClientVersion: "1"}
}

// request returns the part of a fetch about one list.
func request(name string, state []byte) *listRequest {
	t := tripleOf(name)
	return &listRequest{
		ThreatType: t.threat, PlatformType: t.platform, ThreatEntryType: t.entry, State: state,
		Constraints: &sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest_Constraints{
			SupportedCompressions: []sbv4.CompressionType{sbv4.CompressionType_RICE, sbv4.CompressionType_RAW},
		},
	}
}

// fetch fetches lists without states; the answer may be bad.
func (b *bench) fetch(names ...string) { b.fetchWith(nil, nil, names...) }

// fetchWith fetches lists, the first with this state, by a request that change may still change.
func (b *bench) fetchWith(state []byte, change func(*fetchRequest), names ...string) {
	m := &fetchRequest{Client: clientInfo()}
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

// states returns the newest states of the bench's lists.
func (b *bench) states() [][]byte {
	return [][]byte{b.Server.lists["se-4b"].newest().id, b.Server.lists["mw-4b"].newest().id}
}

// find asks about prefixes in both lists with the newest states; the answer may be bad.
func (b *bench) find(prefixes ...string) { b.findWith(b.states(), nil, prefixes...) }

// findWith is find with these states, by a request that change may still change.
func (b *bench) findWith(states [][]byte, change func(*findRequest), prefixes ...string) {
	info := &sbv4.ThreatInfo{
		ThreatTypes:      []sbv4.ThreatType{tripleOf("se-4b").threat, tripleOf("mw-4b").threat},
		PlatformTypes:    []sbv4.PlatformType{sbv4.PlatformType_ANY_PLATFORM},
		ThreatEntryTypes: []sbv4.ThreatEntryType{sbv4.ThreatEntryType_URL},
	}
	for _, p := range prefixes {
		info.ThreatEntries = append(info.ThreatEntries, &sbv4.ThreatEntry{Hash: []byte(p)})
	}
	m := &findRequest{Client: clientInfo(), ClientStates: states, ThreatInfo: info}
	if change != nil {
		change(m)
	}
	_ = read(b, politeV4(b.T, findPath, m), new(sbv4.FindFullHashesResponse))
}

func findA(b *bench) { b.find(entryA) }
func findM(b *bench) { b.find(entryM) }

// inFindBubble is inBubble for a client that has fetched both lists.
func inFindBubble(t *testing.T, name string, f func(b *bench)) {
	inBubble(t, name, func(b *bench) {
		b.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryB), []byte(entryL)})
		b.fetch("se-4b", "mw-4b")
		time.Sleep(time.Hour)
		f(b)
	})
}

// What version 4 shares with version 5, the clock of a list, the growth of a back-off, what a
// cancellation undoes, and the form of a request, is in the tests of version 5.
func TestRefereeReportsV4TooEarly(t *testing.T) {
	notBefore(t, "minimum wait of the method", "minimum wait", time.Hour, fetchSE, fetchMW)
	notBefore(t, "set for the method", "minimum wait", 2*time.Hour, func(b *bench) { b.SetMinimumWait("", time.Minute); b.SetFetchWait(2 * time.Hour); fetchSE(b) }, fetchMW)
	notBefore(t, "the shortest of the lists", "minimum wait", time.Minute, func(b *bench) { b.SetMinimumWait("mw-4b", time.Minute); b.fetch("se-4b", "mw-4b") }, fetchSE)
	for _, f := range []Fault{{WrongName: true}, {V4: FaultV4{TwoAnswers: true}}} {
		notBefore(t, "bad frame with a minimum wait", "minimum wait", time.Hour, func(b *bench) { b.Break("", 1, f); fetchSE(b) }, fetchMW)
	}
	notBefore(t, "bad minimum wait", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{NegativeWait: true}); fetchSE(b) }, fetchMW)
	notBefore(t, "no change, no wait", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		fetchSE(b)
		b.fetchWith(b.version, nil, "se-4b")
	}, fetchSE)
	setUp := func(do func(b *bench)) func(b *bench) {
		return func(b *bench) { b.fetch("se-4b", "mw-4b"); do(b) }
	}
	notBefore(t, "minimum wait of finds", "minimum wait", time.Hour, setUp(func(b *bench) { b.SetFindWait(time.Hour); findA(b); b.ClientStarted() }), findM)
	notBefore(t, "a find has failed", "back-off", 15*time.Minute, setUp(func(b *bench) { b.Break("find", 1, Fault{ShortHash: true}); findA(b) }), findA)
	notBefore(t, "a find has failed that told a minimum wait", "minimum wait", time.Hour, setUp(func(b *bench) {
		b.SetFindWait(time.Hour)
		b.Break("find", 1, Fault{ShortHash: true})
		findA(b)
	}), findA)
	notBefore(t, "found already", "fresh", time.Minute, setUp(func(b *bench) {
		b.SetCacheDuration(time.Minute)
		b.AddFullHash([]byte(entryA+string(make([]byte, 28))), &ThreatDetail{ThreatType: sbv5.ThreatType_MALWARE})
		b.find(entryA, entryM)
	}), findA)
	judged(t, inBubble,
		act{"one unchanged list beside a changed one", func(b *bench) {
			b.SetMinimumWait("se-4b", 0)
			b.fetch("se-4b", "mw-4b")
			b.fetchWith(b.version, nil, "se-4b", "mw-4b") // mw-4b is sent in full again
			fetchSE(b)
		}, ""},
		act{"two fetches", func(b *bench) {
			end := b.meanwhile("fetch", Fault{}, fetchSE)
			se(b)
			b.want("")
			fetchMW(b)
			end()
		}, "under way"})
	judged(t, inFindBubble,
		act{"a find after a cancelled one", func(b *bench) { b.Break("find", 1, Fault{Status: 500}); findA(b); b.ClientCancelled(); findA(b) }, ""},
		act{"a find under way", func(b *bench) {
			end := b.meanwhile("find", Fault{}, func(b *bench) { b.find(entryA, entryB) })
			findM(b)
			b.want("")
			b.find(entryL, entryB)
			end()
		}, "under way"})
}

// States that were right once are judged as versions are, see TestRefereeReportsWrongVersions.
func TestRefereeReportsWrongStates(t *testing.T) {
	judged(t, func(t *testing.T, name string, f func(b *bench)) {
		inBubble(t, name, func(b *bench) { fetchSE(b); time.Sleep(time.Hour); f(b) })
	},
		act{"after bad content", func(b *bench) {
			b.Break("fetch", 1, Fault{NoResponseType: true, List: "se-4b"})
			state := b.version
			b.fetchWith(state, nil, "se-4b", "mw-4b")
			time.Sleep(time.Hour)
			b.fetchWith(state, nil, "se-4b")
		}, "last update was bad"},
		act{"left out of the answer", func(b *bench) {
			b.OmitUnchanged(true)
			state := b.version
			b.fetchWith(state, nil, "se-4b")
			time.Sleep(time.Hour)
			b.fetchWith(state, nil, "se-4b")
		}, ""})

	update := func(b *bench, f Fault) (old [][]byte) {
		old = b.states()
		b.Publish("se-4b", [][]byte{[]byte(entryA)})
		if f != (Fault{}) {
			b.Break("fetch", 1, f)
		}
		b.fetchWith(old[0], nil, "se-4b")
		return old
	}
	find := func(b *bench, states ...[]byte) { b.findWith(states, nil, entryB) }
	judged(t, inFindBubble,
		act{"of a find, old while the new one is applied", func(b *bench) { find(b, update(b, Fault{})...) }, ""},
		act{"of a find, old", func(b *bench) { old := update(b, Fault{}); time.Sleep(applyTime); find(b, old...) }, "want the newest"},
		act{"none though the first one is applied", func(b *bench) { b.ClientStarted(); fetchSE(b); time.Sleep(applyTime); find(b) }, "no state was sent"},
		act{"of a refused answer", func(b *bench) { update(b, Fault{WrongChecksum: true}); find(b, b.states()...) }, "want the newest good"})
}

func TestRefereeReportsMalformedV4(t *testing.T) {
	list := func(change func(l *listRequest)) func(m *fetchRequest) {
		return func(m *fetchRequest) { change(m.ListUpdateRequests[0]) }
	}
	send := func(b *bench, change func(*fetchRequest)) { b.fetchWith(nil, change, "se-4b") }
	judgedChanged(t, inBubble, send, []changed[*fetchRequest]{
		{"limits", list(func(l *listRequest) { l.Constraints.MaxDatabaseEntries, l.Constraints.MaxUpdateEntries = 1<<10, 1<<20 }), "", 200},
		{"no list", func(m *fetchRequest) { m.ListUpdateRequests = nil }, "no list", 400},
		{"list twice", func(m *fetchRequest) { m.ListUpdateRequests = slices.Repeat(m.ListUpdateRequests, 2) }, "more than once", 400},
		{"no entry type", list(func(l *listRequest) { l.ThreatEntryType = 0 }), "three types", 400},
		{"unpublished list", func(m *fetchRequest) { m.ListUpdateRequests[0] = request("pha-4b", nil) }, "", 400},
		{"no constraints", list(func(l *listRequest) { l.Constraints = nil }), "compressions", 200},
		{"too large a power of two", list(func(l *listRequest) { l.Constraints.MaxDatabaseEntries = 1 << 21 }), "max_database_entries", 400},
		{"small update", list(func(l *listRequest) { l.Constraints.MaxUpdateEntries = 10 }), "", 400},
		{"no client", func(m *fetchRequest) { m.Client = nil }, "client_id", 200},
	}...)
	types := func(all ...sbv4.ThreatType) func(m *findRequest) {
		return func(m *findRequest) { m.ThreatInfo.ThreatTypes = all }
	}
	asks := func(name, rule string, change func(*findRequest), prefixes ...string) act {
		return act{name, func(b *bench) { b.findWith(b.states(), change, prefixes...) }, rule}
	}
	judged(t, inFindBubble,
		asks("none", "want 1 to 500", nil),
		asks("duplicate", "duplicates", nil, entryA, entryB, entryA),
		asks("shortened", "no entries", nil, entryL[:5]),
		asks("entry of another list", "no entries", types(tripleOf("se-4b").threat), entryM),
		asks("no type", "threat info", types(), entryA),
		asks("type twice", "threat info", types(tripleOf("se-4b").threat, tripleOf("se-4b").threat), entryA),
		asks("a state twice", "more than one state", func(m *findRequest) { m.ClientStates = append(m.ClientStates, m.ClientStates[0]) }, entryA),
		asks("a foreign state", "never served", func(m *findRequest) { m.ClientStates = append(m.ClientStates, []byte{1}) }, entryA))
	judged(t, inBubble, act{"too many", func(b *bench) {
		var entries [][]byte
		for _, p := range numbered(501) {
			entries = append(entries, []byte(p))
		}
		b.Publish("se-4b", entries)
		b.fetch("se-4b", "mw-4b")
		b.find(numbered(501)...)
	}, "want 1 to 500"})
	sendKey := func(b *bench, change func(*http.Request)) {
		b.SetKey(secret)
		r := politeV4(b.T, fetchPath, &fetchRequest{Client: clientInfo(), ListUpdateRequests: []*listRequest{request("se-4b", nil)}})
		r.Header.Set("X-Goog-Api-Key", secret)
		change(r)
		b.sent(r)
	}
	spying := func(r *http.Request) {
		m := &fetchRequest{Client: &sbv4.ClientInfo{ClientId: "reference", ClientVersion: secret}, ListUpdateRequests: []*listRequest{request("se-4b", nil)}}
		r.Body = politeV4(t, fetchPath, m).Body
	}
	judgedChanged(t, inBubble, sendKey, []changed[*http.Request]{
		{"key in the body", spying, "body of the request fetch holds the key", 200},
		{"JSON as content type", with("Content-Type", "application/json"), "content type", 200},
	}...)
}

func TestRefereeTakesEntriesThatTheOtherServiceGave(t *testing.T) {
	find := func(b *bench, prefix string) { b.findWith(nil, nil, prefix) }
	takesEntries(t, "Web Risk, by lists of v4", (*bench).fetch, (*bench).risk, map[string]string{"longer": "", "long": "", "longe": "no entry"})
	takesEntries(t, "v4, by lists of Web Risk", (*bench).diff, find, map[string]string{"longer": "", "long": "no entries"})
	testkit.Equal(t, "what excuses a find", Excuse("protocoltest: Caching: 2 hash prefixes asked for again"), "the client was restarted")
}
