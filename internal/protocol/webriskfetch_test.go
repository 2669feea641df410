package protocol

import (
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A list of seven million entries may come raw: 28 MB.
func TestWebRiskAnswersMayHave32MiB(t *testing.T) {
	testkit.Long(t)
	for entries, want := range map[int]string{7_000_000: "", 8_400_000: "at most 33554432 are allowed"} {
		m := riskUpdate(riskReset, "")
		m.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{{PrefixSize: 4, RawHashes: make([]byte, 4*entries)}}}
		body := marshal(t, m)
		taken := 0
		_, err := newWebRisk(t, always(binaryForm, body)).Fetch(t.Context(), []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) { taken = added(u) })
		if want == "" && (err != nil || taken != entries) || want != "" && (!errors.Is(err, updater.ErrMalformed) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d entries: took %d, %v", entries, taken, err)
		}
	}
}

// The lists before the one that fails have been taken, those behind it are not asked
// for.
func TestWebRiskFetchStopsAtTheFirstFailure(t *testing.T) {
	asked := 0
	c := newWebRisk(t, answering(func(r *http.Request) (*http.Response, error) {
		if asked++; asked == 3 {
			return response(r, 429, nil, nil), nil
		}
		return always(binaryForm, unhex(t, wireReset))(r)
	}))
	var taken []int
	_, err := c.Fetch(t.Context(), []updater.Want{{List: "mw-4b"}, {List: "se-ext-4b"}, {List: "se-4b"}, {List: "uws-4b"}}, func(i int, u *updater.Update) {
		if taken = append(taken, i); u.Err != nil {
			t.Error(u.Err)
		}
	})
	if status, ok := errors.AsType[*updater.StatusError](err); !ok || status.Code != 429 || !strings.Contains(err.Error(), "list se-4b") || asked != 3 || !slices.Equal(taken, []int{0, 1}) {
		t.Errorf("%d requests, took %v, %v", asked, taken, err)
	}
}

var _ updater.OneByOne = (*WebRisk)(nil)

type (
	diffAnswer = wrv1.ComputeThreatListDiffResponse
	threatHash = wrv1.SearchHashesResponse_ThreatHash
)

const (
	riskDiff  = wrv1.ComputeThreatListDiffResponse_DIFF
	riskReset = wrv1.ComputeThreatListDiffResponse_RESET
)

// riskUpdate is an answer whose result has these entries, in hexadecimal.
func riskUpdate(kind wrv1.ComputeThreatListDiffResponse_ResponseType, result string) *diffAnswer {
	return &diffAnswer{ResponseType: kind, NewVersionToken: []byte("new"), Checksum: &wrv1.ComputeThreatListDiffResponse_Checksum{Sha256: sha256Of(result)}}
}

func riskRaw(size int32, hashes string) *wrv1.RawHashes {
	b, _ := hex.DecodeString(strings.ReplaceAll(hashes, " ", ""))
	return &wrv1.RawHashes{PrefixSize: size, RawHashes: b}
}

func riskRice(first int64, k, n int32, data string) *wrv1.RiceDeltaEncoding {
	b, _ := hex.DecodeString(data)
	return &wrv1.RiceDeltaEncoding{FirstValue: first, RiceParameter: k, EntryCount: n, EncodedData: b}
}

// fetchRisk fetches se-4b while old is held, and applies what comes.
func fetchRisk(t *testing.T, old updater.List, m *diffAnswer) (l updater.List, err error) {
	t.Helper()
	body := marshal(t, m)
	updates, err := fetch(t, newWebRisk(t, always(binaryForm, body)), updater.Want{List: "se-4b", Version: old.Version})
	if err != nil {
		return updater.List{}, err
	}
	l, _, err = updater.Apply(old, updates[0], 1000)
	return l, err
}

// The worked examples of the page "Compression".
func TestWebRiskRiceCodedPrefixes(t *testing.T) {
	for name, test := range map[string]struct {
		set  *wrv1.RiceDeltaEncoding
		want string
	}{
		"5, 20, 29":    {riskRice(5, 2, 2, "f702"), "05000000 14000000 1d000000"},
		"1, 5, 7, 13":  {protocoltest.EncodeRiceWebRisk([]uint32{1, 5, 7, 13}), "01000000 05000000 07000000 0d000000"},
		"a lone value": {riskRice(0x0201, 0, 0, ""), "01020000"},
		"zero":         {riskRice(0, -1, 0, ""), "00000000"},
		"the greatest": {riskRice(1<<32-1, 0, 0, ""), "ffffffff"},
		"numbers that ascend otherwise than their bytes": {protocoltest.EncodeRiceWebRisk([]uint32{4, 768, 131072, 16777216}), "00000001 00000200 00030000 04000000"},
	} {
		t.Run(name, func(t *testing.T) {
			m := riskUpdate(riskReset, test.want)
			m.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: test.set}
			l, err := fetchRisk(t, updater.List{Name: "se-4b"}, m)
			testkit.Must(t, err)
			checkList(t, l, "6e6577", strings.ReplaceAll(test.want, " ", ""), hex.EncodeToString(m.Checksum.Sha256))
		})
	}
}

func TestWebRiskListsOfMixedLengths(t *testing.T) {
	full := riskUpdate(riskReset, "01000000 01000000aa 01000000aa01 05000000 14000000 1d000000 1d000000ffffffff")
	full.Additions = &wrv1.ThreatEntryAdditions{
		RawHashes:  []*wrv1.RawHashes{riskRaw(5, "01000000aa"), riskRaw(6, "01000000aa01"), riskRaw(8, "1d000000ffffffff"), riskRaw(4, "01000000")},
		RiceHashes: riskRice(5, 2, 2, "f702"),
	}
	full.Additions.RawHashes = append(full.Additions.RawHashes, slices.Repeat([]*wrv1.RawHashes{riskRaw(4, "")}, 28)...) // 32 are allowed
	l, err := fetchRisk(t, updater.List{Name: "se-4b"}, full)
	testkit.Must(t, err)
	if got := l.Set.Widths(); !slices.Equal(got, []int{4, 5, 6, 8}) || l.Set.Len() != 7 {
		t.Errorf("%d entries of widths %v", l.Set.Len(), got)
	}
	// The indices count all lengths sorted together: 2 is the one of six
	// bytes, 5 and 6 are the last two.
	for name, removals := range map[string]*wrv1.ThreatEntryRemovals{
		"raw":  {RawIndices: &wrv1.RawIndices{Indices: []int32{6, 2, 5}}},
		"Rice": {RiceIndices: riskRice(2, 2, 2, "16")},
		"both": {RawIndices: &wrv1.RawIndices{Indices: []int32{5, 2}}, RiceIndices: riskRice(6, 0, 0, "")},
	} {
		m := riskUpdate(riskDiff, "01000000 01000000aa 05000000 14000000 14000000ff 1d000000aa")
		m.Removals = removals
		m.Additions = &wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(5, "14000000ff 1d000000aa")}}
		after, err := fetchRisk(t, l, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkList(t, after, "6e6577", "0100000001000000aa050000001400000014000000ff1d000000aa", hex.EncodeToString(m.Checksum.Sha256))
	}
}

// An update without changes need not have a checksum. If it has one, that must be right.
func TestWebRiskUpdatesWithoutChanges(t *testing.T) {
	full := riskUpdate(riskReset, "05000000")
	full.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 0, 0, "")}
	held, err := fetchRisk(t, updater.List{Name: "se-4b"}, full)
	testkit.Must(t, err)
	for name, test := range map[string]struct {
		checksum *wrv1.ComputeThreatListDiffResponse_Checksum
		want     error
	}{
		"no checksum":   {nil, nil},
		"an empty one":  {&wrv1.ComputeThreatListDiffResponse_Checksum{}, nil},
		"the right one": {full.Checksum, nil},
		"of others":     {riskUpdate(riskDiff, "06000000").Checksum, updater.ErrChecksum},
	} {
		m := &diffAnswer{ResponseType: riskDiff, NewVersionToken: []byte("newer"), Checksum: test.checksum}
		l, err := fetchRisk(t, held, m)
		if !errors.Is(err, test.want) || err == nil && (string(l.Version) != "newer" || l.Set.Len() != 1) {
			t.Errorf("%s: got %v, %v, want %v", name, l, err, test.want)
		}
	}
	written := unhex(t, "20013a02763242020a00") // DIFF, version v2, a checksum of no bytes
	updates, err := fetch(t, newWebRisk(t, always(binaryForm, written)), updater.Want{List: "se-4b", Version: held.Version})
	testkit.Must(t, err)
	if l, _, err := updater.Apply(held, updates[0], 1000); err != nil || string(l.Version) != "v2" {
		t.Errorf("a checksum that is written with no bytes: got %v, %v", l, err)
	}
}

func TestWebRiskRejectsWhatCannotBe(t *testing.T) {
	adds := func(a *wrv1.ThreatEntryAdditions) func(*diffAnswer) { return func(m *diffAnswer) { m.Additions = a } }
	raw := func(sets ...*wrv1.RawHashes) func(*diffAnswer) {
		return adds(&wrv1.ThreatEntryAdditions{RawHashes: sets})
	}
	rice := func(r *wrv1.RiceDeltaEncoding) func(*diffAnswer) {
		return adds(&wrv1.ThreatEntryAdditions{RiceHashes: r})
	}
	remove := func(r *wrv1.ThreatEntryRemovals) func(*diffAnswer) {
		return func(m *diffAnswer) { m.ResponseType, m.Removals, m.Additions = riskDiff, r, nil }
	}
	indices := func(all ...int32) *wrv1.ThreatEntryRemovals {
		return &wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: all}}
	}
	good := func() *diffAnswer {
		m := riskUpdate(riskReset, "05000000")
		m.Additions = &wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 0, 0, "")}
		return m
	}
	held, err := fetchRisk(t, updater.List{Name: "se-4b"}, good())
	testkit.Must(t, err)
	for name, alter := range map[string]func(*diffAnswer){
		"neither full nor partial":           func(m *diffAnswer) { m.ResponseType = 0 },
		"an unknown kind of update":          func(m *diffAnswer) { m.ResponseType = 3 },
		"raw prefixes cut":                   raw(riskRaw(5, "0500000000 05")),
		"raw prefixes twice":                 raw(riskRaw(4, "05000000 05000000")),
		"an empty set of raw prefixes":       raw(&wrv1.RawHashes{}),
		"33 sets":                            raw(append(slices.Repeat([]*wrv1.RawHashes{riskRaw(4, "")}, 32), riskRaw(4, "05000000"))...),
		"a prefix raw and in Rice coding":    adds(&wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(4, "05000000")}, RiceHashes: riskRice(5, 0, 0, "")}),
		"a negative first value":             rice(riskRice(-1, 0, 0, "")),
		"a first value over 32 bits":         rice(riskRice(1<<32, 0, 0, "")),
		"a parameter of 1":                   rice(riskRice(5, 1, 1, "02")),
		"a parameter of 29":                  rice(riskRice(5, 29, 1, "0200000000")),
		"a negative count":                   rice(riskRice(5, 2, -1, "f702")),
		"a count that lies":                  rice(riskRice(5, 2, 1<<30, "f702")),
		"data cut":                           rice(riskRice(5, 2, 2, "f7")),
		"no data":                            rice(riskRice(5, 2, 2, "")),
		"a value over 32 bits":               rice(riskRice(1<<32-1, 2, 1, "02")),
		"other numbers than the sum has":     rice(riskRice(6, 0, 0, "")),
		"a full update with removals":        func(m *diffAnswer) { m.Removals = indices(0) },
		"a partial one, nothing being held":  func(m *diffAnswer) { m.ResponseType, m.Additions = riskDiff, nil; m.Removals = indices(1 << 30) },
		"a removal behind the end":           remove(indices(1)),
		"a negative removal":                 remove(indices(-1)),
		"a removal twice":                    remove(indices(0, 0)),
		"a removal raw and in Rice coding":   remove(&wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: []int32{0}}, RiceIndices: riskRice(0, 0, 0, "")}),
		"Rice removals from -1":              remove(&wrv1.ThreatEntryRemovals{RiceIndices: riskRice(-1, 0, 0, "")}),
		"Rice removals that are cut":         remove(&wrv1.ThreatEntryRemovals{RiceIndices: riskRice(0, 2, 2, "f7")}),
		"no version":                         func(m *diffAnswer) { m.NewVersionToken = nil },
		"a checksum of 31 bytes":             func(m *diffAnswer) { m.Checksum.Sha256 = m.Checksum.Sha256[:31] },
		"an empty checksum":                  func(m *diffAnswer) { m.Checksum.Sha256 = nil },
		"no checksum":                        func(m *diffAnswer) { m.Checksum = nil },
		"a checksum of something else":       func(m *diffAnswer) { m.Checksum.Sha256[0] ^= 1 },
		"a next diff that cannot be":         func(m *diffAnswer) { m.RecommendedNextDiff = &timestamppb.Timestamp{Nanos: -1} },
		"a next diff in the year 10000":      func(m *diffAnswer) { m.RecommendedNextDiff = &timestamppb.Timestamp{Seconds: 253402300800} },
		"a million raw removals of one list": remove(indices(make([]int32, 1_050_000)...)),
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			alter(m)
			l, err := fetchRisk(t, held, m)
			if !errors.Is(err, updater.ErrMalformed) && !errors.Is(err, updater.ErrChecksum) || l.Set != nil {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
}
