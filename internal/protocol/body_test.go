package protocol

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func zipped(raw []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	z.Write(raw)
	z.Close()
	return buf.Bytes()
}

// encoded is an answer whose body is compressed as coding says.
func encoded(status int, coding, contentType string, body []byte) answering {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, status, http.Header{"Content-Type": {contentType}, "Content-Encoding": {coding}}, body), nil
	}
}

func TestBytesThatComeOfAByteAreBounded(t *testing.T) {
	testkit.Long(t)
	noise := make([]byte, 5<<18)
	rand.NewChaCha8([32]byte{}).Read(noise)
	hex := fmt.Appendf(nil, "%x", noise)
	for _, test := range []struct {
		name, coding string
		raw          []byte
		good         bool
	}{
		{"a megabyte of one byte", "gzip", make([]byte, 1<<20), true},
		{"more than a megabyte of one byte", "gzip", make([]byte, 1<<20+1<<18), false},
		{"more of one byte, not compressed", "", make([]byte, 4<<20), true},
		{"more that does not compress", "gzip", noise, true},
		{"more, half of it for nothing", "gzip", hex, true},
		{"a list of numbers that is indented", "gzip", bytes.ReplaceAll(hex, []byte("0"), []byte(",\n                    ")), true},
	} {
		body := test.raw
		if test.coding != "" {
			body = zipped(body)
		}
		answer, _ := encoded(200, test.coding, "", body)(nil)
		testkit.Must(t, Bound(t.Context(), answer, 128<<20))
		got, err := io.ReadAll(answer.Body)
		if test.good != (err == nil) || test.good && !bytes.Equal(got, test.raw) || err != nil && !errors.Is(err, updater.ErrMalformed) {
			t.Errorf("%s: %d of %d bytes, %v", test.name, len(got), len(test.raw), err)
		}
	}
}

func TestCompressions(t *testing.T) {
	raw := unhex(t, wireFound)
	whole := zipped(raw)
	for _, test := range []struct {
		name, coding string
		body         []byte
		want         error
	}{
		{"none", "", raw, nil},
		{"none, by name", "identity", raw, nil},
		{"gzip", "gzip", whole, nil},
		{"gzip in capitals", "GZIP", whole, nil},
		{"gzip by its old name", "x-gzip", whole, nil},
		{"gzip in two parts", "gzip", append(zipped(raw[:5]), zipped(raw[5:])...), nil},
		{"gzip that is cut", "gzip", whole[:len(whole)-9], io.ErrUnexpectedEOF},
		{"gzip that is not", "gzip", raw, updater.ErrMalformed},
		{"gzip with a wrong checksum", "gzip", append(bytes.Clone(whole[:len(whole)-8]), make([]byte, 8)...), updater.ErrMalformed},
		{"gzip that is corrupt", "gzip", append(bytes.Clone(whole[:10]), 0xff, 0xff), updater.ErrMalformed},
		{"gzip twice", "gzip, gzip", zipped(whole), updater.ErrMalformed},
		{"another one", "br", raw, updater.ErrMalformed},
	} {
		answer, err := newClient(t, encoded(200, test.coding, binaryForm, test.body)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if !errors.Is(err, test.want) || err == nil && len(answer.Threats) != 1 {
			t.Errorf("%s: got %v, %v, want %v", test.name, answer, err, test.want)
		}
	}
}

const jsonForm = "application/json"

// manyFullHashes is an answer with n full hashes, each with four details of two
// attributes.
func manyFullHashes(n int) *sbv5.SearchHashesResponse {
	m := new(sbv5.SearchHashesResponse)
	for i := range n {
		f := &sbv5.FullHash{FullHash: bytes.Repeat([]byte{byte(i)}, 32)}
		for threat := range sbv5.ThreatType(4) {
			f.FullHashDetails = append(f.FullHashDetails, detail(threat+1, sbv5.ThreatAttribute_CANARY, sbv5.ThreatAttribute_FRAME_ONLY)...)
		}
		m.FullHashes = append(m.FullHashes, f)
	}
	return m
}

// An answer to a search that needs much memory for each of its bytes is refused
// before it is decoded, and one that is long for good reasons is not.
func TestStructuresOfAnAnswerAreBounded(t *testing.T) {
	good := manyFullHashes(2 * lookup.MaxPrefixes)
	goodText, err := protojson.Marshal(good)
	testkit.Must(t, err)
	tooMany := manyFullHashes(1500)
	for _, test := range []struct {
		name, contentType string
		body              []byte
		good              bool
	}{
		{"two full hashes of four details behind each of 240 prefixes", binaryForm, marshal(t, good), true},
		{"the same in JSON", jsonForm, goodText, true},
		{"six of them", binaryForm, marshal(t, tooMany), false},
		{"empty full hashes", binaryForm, bytes.Repeat([]byte{0x0a, 0}, 20_000), false},
		{"empty full hashes in JSON", jsonForm, []byte(`{"fullHashes":[{}` + strings.Repeat(",{}", 20_000) + `]}`), false},
	} {
		_, err := newClient(t, always(test.contentType, test.body)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		if refused := err != nil && strings.Contains(err.Error(), "of memory"); refused == test.good || refused && !errors.Is(err, updater.ErrMalformed) {
			t.Errorf("%s, %d bytes: %v", test.name, len(test.body), err)
		}
	}
}

// What is said of messages is what they take: the weight is no less than the bytes
// that decoding allocates.
func TestWeightIsWhatDecodingTakes(t *testing.T) {
	for name, m := range map[string]proto.Message{
		"searches":     manyFullHashes(480),
		"empty hashes": &sbv5.SearchHashesResponse{FullHashes: make([]*sbv5.FullHash, 5000)},
		"threat types": &sbv5.HashList{Metadata: &sbv5.HashListMetadata{ThreatTypes: make([]sbv5.ThreatType, 100_000)}},
	} {
		raw := marshal(t, m)
		got := allocated(func() { testkit.Must(t, proto.Unmarshal(raw, m.ProtoReflect().New().Interface())) })
		weight := math.MaxInt32 - int(weigh(raw, m.ProtoReflect().Descriptor(), math.MaxInt32)) + len(raw)
		if got > 2*weight || weight > 4*got {
			t.Errorf("%s: decoding allocates %d bytes, the weight is %d", name, got, weight)
		}
	}
}

// allocated returns how many bytes are allocated in f.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func TestEntriesFitAnInt(t *testing.T) {
	r := rice{width: 4, parameter: 3, count: math.MaxInt32, size: math.MaxInt64 / 8}
	if err := r.check(parametersV5(4)); !errors.Is(err, updater.ErrMalformed) {
		t.Errorf("one more than %d integers: %v", math.MaxInt32, err)
	}
	braces := bytes.Repeat([]byte{'{'}, 1<<32/messageWeight+1)
	if err := boundUpdates.check(braces, jsonForm, nil); !errors.Is(err, updater.ErrMalformed) {
		t.Errorf("a weight of more than 32 bits: %v", err)
	}
}

func TestVersionsAreBounded(t *testing.T) {
	for size, good := range map[int]bool{1024: true, 1025: false} {
		for service, u := range map[string]*updater.Update{
			"v5":       updateOf(t.Context(), &sbv5.HashList{Name: "se-4b", Version: make([]byte, size), MinimumWaitDuration: durationpb.New(time.Hour)}),
			"Web Risk": updateOfWebRisk(t.Context(), &wrv1.ComputeThreatListDiffResponse{NewVersionToken: make([]byte, size), ResponseType: wrv1.ComputeThreatListDiffResponse_RESET}, serverClock{}),
		} {
			if good != (u.Err == nil) || u.Err != nil && !errors.Is(u.Err, updater.ErrMalformed) {
				t.Errorf("%s, a version of %d bytes: %v", service, size, u.Err)
			}
			if service == "v5" && u.MinimumWait != time.Hour {
				t.Errorf("a version of %d bytes: a minimum wait of %s", size, u.MinimumWait)
			}
		}
	}
}

// Whatever of an answer is in memory already, it is not decoded when the request is
// over.
func TestDecodingEndsWithItsContext(t *testing.T) {
	testkit.Long(t)
	whole, _ := fullList(t, "se-4b", 1000)
	long, _ := fullList(t, "se-4b", 1_000_000)
	wholeText, err := protojson.Marshal(whole)
	testkit.Must(t, err)
	streamed := inOrder(t, long)
	if int64(len(streamed)) <= maxWhole {
		t.Fatalf("a list of %d bytes is read whole", len(streamed))
	}
	v5 := func(contentType string, body []byte) Client { return newClient(t, always(contentType, body)) }
	webRisk := func(additions *wrv1.ThreatEntryAdditions) Client {
		m := &wrv1.ComputeThreatListDiffResponse{ResponseType: wrv1.ComputeThreatListDiffResponse_RESET, NewVersionToken: []byte("new"), Additions: additions,
			RecommendedNextDiff: timestamppb.New(time.Now().Add(time.Hour + time.Minute))}
		return newWebRisk(t, always(binaryForm, marshal(t, m)))
	}
	endWithTheirContexts(t, map[string]Client{
		"v5, read whole":             v5(binaryForm, marshal(t, whole)),
		"v5, decoded while it comes": v5(binaryForm, streamed),
		"v5, JSON":                   v5(jsonForm, wholeText),
		"Web Risk, Rice":             webRisk(&wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 2, 2, "f702")}),
		"Web Risk, raw":              webRisk(&wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(4, "00000001")}}),
	})
}

// endWithTheirContexts holds that what each client decodes of an answer about se-4b ends with
// the request.
func endWithTheirContexts(t *testing.T, clients map[string]Client) {
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			old := heldLists()[4]
			old.Name = "se-4b"
			for _, over := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var applied error
				wait, err := c.Fetch(ctx, []updater.Want{{List: "se-4b", Version: old.Version}}, func(_ int, u *updater.Update) {
					if over {
						cancel()
					}
					_, _, applied = updater.Apply(old, u, 1<<24)
				})
				if !over && (err != nil || errors.Is(applied, context.Canceled)) {
					t.Errorf("the request continues, but got %v, %v", err, applied)
				}
				if over && (!errors.Is(err, context.Canceled) || applied == nil || errors.Is(applied, updater.ErrChecksum)) {
					t.Errorf("the request is over, but got %v, %v", err, applied)
				}
				if told := name == "v5, read whole" || name == "v5, JSON" || strings.HasPrefix(name, "Web Risk"); over && told != (wait >= time.Hour) {
					t.Errorf("the request is over, and the minimum wait in its answer is %s", wait)
				}
			}
		})
	}
}
