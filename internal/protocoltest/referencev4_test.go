package protocoltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
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

// fetchV4 fetches lists in one request, which change may still change, and applies
// the answer; the errors by list are about contents, err is about the request.
func fetchV4(t testing.TB, s http.RoundTripper, copies map[string]*copyOf, change func(*listRequest), names ...string) (bad map[string]error, err error) {
	t.Helper()
	m := &sbv4.FetchThreatListUpdatesRequest{Client: clientInfo()}
	for _, name := range names {
		var state []byte
		if c := copies[name]; c != nil {
			state = c.version
		}
		part := request(name, state)
		if change != nil {
			change(part)
		}
		m.ListUpdateRequests = append(m.ListUpdateRequests, part)
	}
	var answer sbv4.FetchThreatListUpdatesResponse
	if err := read(s, politeV4(t, fetchPath, m), &answer); err != nil {
		return nil, err
	}
	if answer.MinimumWaitDuration.AsDuration() < 0 {
		return nil, errors.New("negative wait")
	}
	byName := map[string]*listUpdate{}
	for _, u := range answer.ListUpdateResponses {
		name := triple{u.ThreatType, u.PlatformType, u.ThreatEntryType}.list()
		if !slices.Contains(names, name) || byName[name] != nil {
			return nil, fmt.Errorf("list %s was not asked for or answered twice", name)
		}
		byName[name] = u
	}
	bad = map[string]error{}
	for name, u := range byName {
		next, err := applyV4(copies[name], u)
		copies[name] = next
		if err != nil {
			bad[name] = err
		}
	}
	return bad, nil
}

// applyV4 is apply for v4 (pages "Local Databases", "Compression").
func applyV4(old *copyOf, m *listUpdate) (*copyOf, error) {
	if len(m.NewClientState) == 0 || len(m.GetChecksum().GetSha256()) != 32 {
		return nil, errors.New("no state or no checksum")
	}
	var base []string
	switch m.ResponseType {
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_PARTIAL_UPDATE:
		if old == nil || old.version == nil {
			return nil, errors.New("partial update without base")
		}
		base = slices.Clone(old.entries)
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_FULL_UPDATE:
	default:
		return nil, errors.New("no response type")
	}
	removals, err := decodeRemovalsV4(m.Removals)
	if err != nil {
		return nil, err
	}
	for i, index := range slices.Backward(removals) {
		if index >= int64(len(base)) || index < 0 || i > 0 && removals[i-1] >= index {
			return nil, errors.New("removal out of range or order")
		}
		base = slices.Delete(base, int(index), int(index)+1)
	}
	for _, set := range m.Additions {
		more, err := decodeSetV4(set)
		if err != nil {
			return nil, err
		}
		base = append(base, more...)
	}
	slices.Sort(base)
	if len(slices.Compact(slices.Clone(base))) < len(base) {
		return nil, errors.New("duplicate entry")
	}
	if !bytes.Equal(digest([]byte(strings.Join(base, ""))), m.Checksum.Sha256) {
		return nil, errors.New("wrong checksum")
	}
	return &copyOf{version: m.NewClientState, entries: base}, nil
}

func decodeRemovalsV4(sets []*sbv4.ThreatEntrySet) (indices []int64, err error) {
	for _, set := range sets {
		switch set.CompressionType {
		case sbv4.CompressionType_RAW:
			for _, i := range set.RawIndices.Indices {
				indices = append(indices, int64(i))
			}
		case sbv4.CompressionType_RICE:
			values, err := decodeRiceV4(set.RiceIndices)
			if err != nil {
				return nil, err
			}
			for _, v := range values {
				indices = append(indices, v.Int64())
			}
		default:
			return nil, errors.New("no compression type")
		}
	}
	return indices, nil
}

func decodeSetV4(set *sbv4.ThreatEntrySet) (entries []string, err error) {
	switch set.CompressionType {
	case sbv4.CompressionType_RAW:
		width, all := int(set.RawHashes.PrefixSize), set.RawHashes.RawHashes
		if width < 4 || width > 32 || len(all)%width != 0 {
			return nil, fmt.Errorf("%d bytes of %d each", len(all), width)
		}
		for e := range slices.Chunk(all, width) {
			entries = append(entries, string(e))
		}
		if !slices.IsSorted(entries) {
			return nil, errors.New("unsorted")
		}
		return entries, nil
	case sbv4.CompressionType_RICE:
		values, err := decodeRiceV4(set.RiceHashes)
		for _, v := range values {
			entries = append(entries, string(binary.LittleEndian.AppendUint32(nil, uint32(v.Int64()))))
		}
		return entries, err
	}
	return nil, errors.New("no compression type")
}

func decodeRiceV4(m *sbv4.RiceDeltaEncoding) ([]*big.Int, error) {
	if m.FirstValue < 0 || m.FirstValue > 1<<32-1 {
		return nil, errors.New("first value out of range")
	}
	if m.NumEntries > 0 && (m.RiceParameter < 2 || m.RiceParameter > 28) {
		return nil, errors.New("parameter out of range")
	}
	return decodeRiceBits(32, big.NewInt(m.FirstValue), m.RiceParameter, m.NumEntries, m.EncodedData)
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
