package protocoltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

const (
	diffPath      = "/v1/threatLists:computeDiff"
	searchOnePath = "/v1/hashes:search"
)

// riskNames are the lists of the reference client and their threat types.
var riskNames = map[string]string{
	"se-4b": "SOCIAL_ENGINEERING", "mw-4b": "MALWARE", "uws-4b": "UNWANTED_SOFTWARE",
	"se-ext-4b": "SOCIAL_ENGINEERING_EXTENDED_COVERAGE",
}

// politeRisk returns a request of Web Risk that breaks no rule of form.
func politeRisk(t testing.TB, path string, values url.Values) *http.Request {
	t.Helper()
	r := polite(t, path, nil)
	r.URL.RawQuery = values.Encode()
	r.Header.Set("Accept", "application/x-protobuf")
	return r
}

// readRisk sends a request and parses the answer, in whichever format, into m.
func readRisk(client http.RoundTripper, r *http.Request, m proto.Message) error {
	resp, err := client.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	if err != nil || len(b) == maxRead {
		return fmt.Errorf("answer cut or too large: %w", err)
	}
	switch media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media {
	case "application/json":
		return protojson.Unmarshal(b, m)
	case "application/x-protobuf":
		return proto.Unmarshal(b, m)
	default:
		return fmt.Errorf("content type %q", media)
	}
}

// diffValues returns the parameters of computeDiff for a list.
func diffValues(list string, token []byte) url.Values {
	values := url.Values{"threatType": {riskNames[list]}, "constraints.supportedCompressions": {"RICE", "RAW"}}
	if token != nil {
		values.Set("versionToken", base64URL(token))
	}
	return values
}

// diffRisk fetches a list and applies the answer; bad is about contents, err is about
// the request.
func diffRisk(t testing.TB, s http.RoundTripper, copies map[string]*copyOf, list string) (bad, err error) {
	t.Helper()
	var token []byte
	if c := copies[list]; c != nil {
		token = c.version
	}
	var m wrv1.ComputeThreatListDiffResponse
	if err := readRisk(s, politeRisk(t, diffPath, diffValues(list, token)), &m); err != nil {
		return nil, err
	}
	copies[list], bad = applyRisk(copies[list], &m)
	return bad, nil
}

// applyRisk is apply for Web Risk.
func applyRisk(old *copyOf, m *wrv1.ComputeThreatListDiffResponse) (*copyOf, error) {
	if len(m.NewVersionToken) == 0 || len(m.GetChecksum().GetSha256()) != 32 {
		return nil, errors.New("no version token or no checksum")
	}
	var base []string
	switch m.ResponseType {
	case wrv1.ComputeThreatListDiffResponse_DIFF:
		if old == nil || old.version == nil {
			return nil, errors.New("diff without base")
		}
		base = slices.Clone(old.entries)
	case wrv1.ComputeThreatListDiffResponse_RESET:
	default:
		return nil, errors.New("neither diff nor reset")
	}
	base, err := removeRisk(base, m.Removals)
	if err != nil {
		return nil, err
	}
	additions, err := additionsRisk(m.Additions)
	if err != nil {
		return nil, err
	}
	base = append(base, additions...)
	slices.Sort(base)
	if len(slices.Compact(slices.Clone(base))) < len(base) {
		return nil, errors.New("duplicate entry")
	}
	if !bytes.Equal(digest([]byte(strings.Join(base, ""))), m.Checksum.Sha256) {
		return nil, errors.New("wrong checksum")
	}
	return &copyOf{version: m.NewVersionToken, entries: base}, nil
}

// removeRisk removes entries from base.
func removeRisk(base []string, removals *wrv1.ThreatEntryRemovals) ([]string, error) {
	indices := slices.Clone(removals.GetRawIndices().GetIndices())
	if removals.GetRiceIndices() != nil {
		values, err := decodeRiceRisk(removals.RiceIndices)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			indices = append(indices, int32(v.Int64()))
		}
	}
	for i, index := range slices.Backward(indices) {
		if int(index) >= len(base) || index < 0 || i > 0 && indices[i-1] >= index {
			return nil, errors.New("removal out of range or order")
		}
		base = slices.Delete(base, int(index), int(index)+1)
	}
	return base, nil
}

// additionsRisk returns the entries of all sets of additions.
func additionsRisk(additions *wrv1.ThreatEntryAdditions) (entries []string, err error) {
	for _, raw := range additions.GetRawHashes() {
		width := int(raw.PrefixSize)
		if width < 4 || width > 32 || len(raw.RawHashes)%width != 0 {
			return nil, fmt.Errorf("%d bytes of %d each", len(raw.RawHashes), width)
		}
		var set []string
		for e := range slices.Chunk(raw.RawHashes, width) {
			set = append(set, string(e))
		}
		if !slices.IsSorted(set) {
			return nil, errors.New("unsorted")
		}
		entries = append(entries, set...)
	}
	if additions.GetRiceHashes() == nil {
		return entries, nil
	}
	values, err := decodeRiceRisk(additions.RiceHashes)
	for _, v := range values {
		entries = append(entries, string(binary.LittleEndian.AppendUint32(nil, uint32(v.Int64()))))
	}
	return entries, err
}

func decodeRiceRisk(m *wrv1.RiceDeltaEncoding) ([]*big.Int, error) {
	if m.FirstValue < 0 || m.FirstValue > 1<<32-1 {
		return nil, errors.New("first value out of range")
	}
	if m.EntryCount > 0 && (m.RiceParameter < 2 || m.RiceParameter > 28) {
		return nil, errors.New("parameter out of range")
	}
	return decodeRiceBits(32, big.NewInt(m.FirstValue), m.RiceParameter, m.EntryCount, m.EncodedData)
}

// searchValues returns the parameters of hashes.search for a prefix.
func searchValues(prefix string, lists ...string) url.Values {
	values := url.Values{"hashPrefix": {base64URL([]byte(prefix))}}
	for _, list := range lists {
		values.Add("threatTypes", riskNames[list])
	}
	return values
}

// searchRisk asks about a prefix in some lists. A malformed answer is an error.
func searchRisk(t testing.TB, s http.RoundTripper, prefix string, lists ...string) (*wrv1.SearchHashesResponse, error) {
	t.Helper()
	m := &wrv1.SearchHashesResponse{}
	if err := readRisk(s, politeRisk(t, searchOnePath, searchValues(prefix, lists...)), m); err != nil {
		return nil, err
	}
	for _, threat := range m.Threats {
		if n := len(threat.Hash); n != 32 {
			return nil, fmt.Errorf("full hash of %d bytes", n)
		}
	}
	return m, nil
}

// diff fetches lists, each by a request and without a token; the answers may be bad.
func (b *bench) diff(lists ...string) {
	for _, list := range lists {
		b.diffWith(list, nil, nil)
	}
}

// diffWith fetches a list with this token, by a request whose parameters change may
// still change.
func (b *bench) diffWith(list string, token []byte, change func(values url.Values)) {
	values := diffValues(list, token)
	if change != nil {
		change(values)
	}
	var m wrv1.ComputeThreatListDiffResponse
	if readRisk(b, politeRisk(b.T, diffPath, values), &m) == nil {
		b.version = m.NewVersionToken
	}
}

// risk asks about a prefix in both lists; the answer may be bad.
func (b *bench) risk(prefix string) { _, _ = searchRisk(b.T, b, prefix, "se-4b", "mw-4b") }

// inRiskBubble is inBubble for a client of Web Risk that has fetched both lists.
func inRiskBubble(t *testing.T, name string, f func(b *bench)) {
	inBubble(t, name, func(b *bench) {
		b.Publish("se-4b", [][]byte{[]byte(entryA), []byte(entryB), []byte(entryL)})
		b.diff("se-4b", "mw-4b")
		time.Sleep(time.Hour)
		f(b)
	})
}
