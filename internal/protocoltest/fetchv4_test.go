package protocoltest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

func TestFetchLeadsToTheNewestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		rng := rand.New(rand.NewPCG(3, 4))
		names := []string{"se-4b", "mw-4b", "uws-4b", "uwsa-4b", "pha-4b"}
		entries := map[string][][]byte{}
		copies := map[string]*copyOf{}
		for round := range 60 {
			s.SetRawRemovals(round%3 == 0)
			s.OmitUnchanged(round%4 == 0)
			for i, name := range names {
				if (round+i)%7 != 3 {
					entries[name] = append(evolve(rng, 4, entries[name]), mixed(rng, rng.IntN(20))...)
				}
				if round == 30 {
					entries[name] = nil
				}
				s.Publish(name, entries[name])
				if round%20 == 19 {
					s.ForgetVersions(name)
				}
			}
			bad, err := fetchV4(t, s, copies, nil, names...)
			if err != nil || len(bad) > 0 {
				t.Fatalf("round %d: %v, %v", round, bad, err)
			}
			for _, name := range names {
				if !slices.Equal(copies[name].entries, sorted(entries[name])) {
					t.Fatalf("round %d: %s is not the newest version", round, name)
				}
			}
			time.Sleep(30 * time.Minute)
		}
	})
}

func TestMaxUpdateEntriesSplitsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		s.Publish("se-4b", randomEntries(rand.New(rand.NewPCG(5, 6)), 7, 5000))
		s.Publish("mw-4b", nil)
		s.SetFetchWait(time.Hour)
		copies := map[string]*copyOf{}
		limit := func(r *listRequest) { r.Constraints.MaxUpdateEntries, r.Constraints.MaxDatabaseEntries = 1024, 1<<20 }
		want := s.lists["se-4b"].newest()
		for n := range 5 { // at once, as long as entries are missing
			bad, err := fetchV4(t, s, copies, limit, "se-4b", "mw-4b")
			if err != nil || len(bad) > 0 {
				t.Fatalf("step %d: %v, %v", n, bad, err)
			}
		}
		if !bytes.Equal(copies["se-4b"].version, want.id) || !slices.Equal(copies["se-4b"].entries, want.entries) {
			t.Error("the steps do not lead to the newest version")
		}
		if got := s.Requests("fetch")[4]; got.MaxUpdate != 1024 || got.MaxDatabase != 1<<20 || len(got.Versions) != 2 {
			t.Errorf("noted as %+v", got)
		}
		time.Sleep(time.Hour)
	})
}

// A state is a version: a client may change the protocol and keep its lists.
func TestStatesAreVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		s.Publish("se-4b", [][]byte{[]byte("aaaa")})
		copies := map[string]*copyOf{}
		for round := range 6 {
			if round > 0 {
				s.ClientStarted()
				s.Publish("se-4b", [][]byte{[]byte("aaaa"), {1, 1, 1, byte(round)}})
			}
			use := func() (map[string]error, error) { return fetchV4(t, s, copies, nil, "se-4b") }
			if round%2 == 0 {
				use = func() (map[string]error, error) { return fetch(t, s, copies, nil, "se-4b") }
			}
			if bad, err := use(); err != nil || len(bad) > 0 {
				t.Fatal(bad, err)
			}
			if _, partial := s.lists["se-4b"].find(copies["se-4b"].version); !partial {
				t.Error("the version is unknown")
			}
			time.Sleep(time.Hour)
		}
	})
}

// answerOf returns the answer to a fetch of some lists with these states.
func answerOf(t *testing.T, s *Server, states map[string][]byte, names ...string) *sbv4.FetchThreatListUpdatesResponse {
	t.Helper()
	m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo()}
	for _, name := range names {
		m.ListUpdateRequests = append(m.ListUpdateRequests, request(name, states[name]))
	}
	answer := &sbv4.FetchThreatListUpdatesResponse{}
	if err := read(s, politeV4(t, fetchPath, m), answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestFetchAnswersPerLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		s.Publish("se-4b", [][]byte{[]byte("bbbb"), []byte("aaaab"), []byte("aaaa"), []byte("aaaac"), []byte("zzzzzz")})
		s.Publish("mw-4b", nil)
		s.SetFetchWait(time.Hour)
		m := answerOf(t, s, nil, "se-4b", "mw-4b")
		se := m.ListUpdateResponses[1] // the order is the reverse
		var got []string
		for _, set := range se.Additions {
			got = append(got, fmt.Sprintf("%s %d %s", set.CompressionType, set.GetRawHashes().GetPrefixSize(), set.GetRawHashes().GetRawHashes()))
		}
		if want := []string{"RICE 0 ", "RAW 5 aaaabaaaac", "RAW 6 zzzzzz"}; !slices.Equal(got, want) {
			t.Errorf("sets %q, want %q", got, want)
		}
		if want := digest([]byte("aaaaaaaabaaaacbbbbzzzzzz")); !bytes.Equal(se.Checksum.Sha256, want) {
			t.Errorf("checksum %x, want %x over all lengths in one order", se.Checksum.Sha256, want)
		}
		s.Publish("se-4b", [][]byte{[]byte("aaaa"), []byte("bbbb"), []byte("zzzzzz")})
		time.Sleep(time.Hour)
		m = answerOf(t, s, map[string][]byte{"se-4b": se.NewClientState, "mw-4b": m.ListUpdateResponses[0].NewClientState}, "mw-4b", "se-4b")
		want := []*sbv4.ThreatEntrySet{{
			CompressionType: sbv4.CompressionType_RICE,
			RiceIndices:     &sbv4.RiceDeltaEncoding{FirstValue: 1, RiceParameter: 2, NumEntries: 1, EncodedData: []byte{2}},
		}}
		if got := m.ListUpdateResponses[0]; len(got.Removals) != 1 || !proto.Equal(got.Removals[0], want[0]) || len(got.Additions) > 0 {
			t.Errorf("got %v, want removals %v alone", got, want)
		}
		s.SetRawRemovals(true)
		time.Sleep(time.Hour)
		s.ClientStarted() // may come back with an older state
		raw := answerOf(t, s, map[string][]byte{"se-4b": se.NewClientState}, "se-4b").ListUpdateResponses[0].Removals
		if len(raw) != 1 || !slices.Equal(raw[0].GetRawIndices().GetIndices(), []int32{1, 2}) {
			t.Errorf("got %v, want the raw indices 1 and 2", raw)
		}
		unchanged := m.ListUpdateResponses[1]
		if unchanged.ResponseType != 1 || len(unchanged.Checksum.Sha256) != 32 || len(unchanged.Additions)+len(unchanged.Removals) > 0 {
			t.Errorf("got %v, want a partial update with a checksum alone", unchanged)
		}
	})
}

// The sample shows the request of one list by its field numbers.
func TestFetchRequestMatchesWireSample(t *testing.T) {
	m := &sbv4.FetchThreatListUpdatesRequest{
		Client:             &sbv4.ClientInfo{ClientId: "coredns-safebrowsing", ClientVersion: "1.0"},
		ListUpdateRequests: []*listRequest{request("se-4b", nil)},
	}
	want := unhex(t, "0a1b0a14636f7265646e732d7361666562726f7773696e671203312e301a0c080210062204220202012801")
	if got, err := proto.Marshal(m); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
}
