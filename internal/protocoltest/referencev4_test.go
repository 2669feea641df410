package protocoltest

import (
	"bytes"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	fetchPath = "/v4/threatListUpdates:fetch"
	findPath  = "/v4/fullHashes:find"
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

// listRequest is a part of a request of threatListUpdates.fetch.
type listRequest = sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest

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

// findV4 asks about prefixes in some lists, with these states; change may still
// change the request. The answer may be bad.
func (b *bench) findV4(states [][]byte, lists, prefixes []string, change func(*sbv4.FindFullHashesRequest)) {
	info := &sbv4.ThreatInfo{ThreatEntryTypes: []sbv4.ThreatEntryType{sbv4.ThreatEntryType_URL}}
	for _, name := range lists {
		of := tripleOf(name)
		if !slices.Contains(info.ThreatTypes, of.threat) {
			info.ThreatTypes = append(info.ThreatTypes, of.threat)
		}
		if !slices.Contains(info.PlatformTypes, of.platform) {
			info.PlatformTypes = append(info.PlatformTypes, of.platform)
		}
	}
	for _, p := range prefixes {
		info.ThreatEntries = append(info.ThreatEntries, &sbv4.ThreatEntry{Hash: []byte(p)})
	}
	m := &sbv4.FindFullHashesRequest{Client: clientInfo(), ClientStates: states, ThreatInfo: info}
	if change != nil {
		change(m)
	}
	_ = read(b, politeV4(b.T, findPath, m), new(sbv4.FindFullHashesResponse))
}
