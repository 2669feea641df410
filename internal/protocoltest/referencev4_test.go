package protocoltest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

const (
	fetchPath = "/v4/threatListUpdates:fetch"
	findPath  = "/v4/fullHashes:find"
)

// politeV4 returns a request that breaks no rule of form.
func politeV4(t testing.TB, path string, m proto.Message) *http.Request {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://sb.test"+path+"?alt=proto", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
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
// change the request. A malformed answer is an error.
func findV4(t testing.TB, s http.RoundTripper, states [][]byte, lists, prefixes []string, change func(*sbv4.FindFullHashesRequest)) (*sbv4.FindFullHashesResponse, error) {
	t.Helper()
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
	answer := &sbv4.FindFullHashesResponse{}
	if err := read(s, politeV4(t, findPath, m), answer); err != nil {
		return nil, err
	}
	for _, match := range answer.Matches {
		if n := len(match.Threat.Hash); n != 32 {
			return nil, fmt.Errorf("full hash of %d bytes", n)
		}
	}
	return answer, nil
}
