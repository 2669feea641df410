package protocol

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// streamAll makes every message be read as a long one, until the test ends.
func streamAll(t testing.TB) {
	before := maxWhole
	maxWhole = -1
	t.Cleanup(func() { maxWhole = before })
}

// fullList is a full update of a list with n random entries.
func fullList(t testing.TB, name string, n int) (m *sbv5.HashList, entries []byte) {
	t.Helper()
	width, err := updater.Width(name)
	testkit.Must(t, err)
	all := randomEntries(rand.New(rand.NewPCG(uint64(n), uint64(width))), width, n, false)
	entries = bytes.Join(all, nil)
	sum := sha256.Sum256(entries)
	m = &sbv5.HashList{Name: name, Version: []byte{7}, Sha256Checksum: sum[:], MinimumWaitDuration: durationpb.New(time.Hour)}
	protocoltest.EncodeAdditions(width, all, m)
	return m, entries
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	testkit.Must(t, err)
	return raw
}

// batch is the answer with these messages of lists.
func batch(lists ...[]byte) (raw []byte) {
	for _, list := range lists {
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 1, protowire.BytesType), list)
	}
	return raw
}

// streamed reads an answer about one list whose content is old, and applies it: as
// the answer to a batch, or else to a request for this list only.
func streamed(t testing.TB, inBatch bool, list io.Reader, old updater.List) (l updater.List, u updater.Update, err error) {
	t.Helper()
	taken := 0
	take := func(update *updater.Update) {
		taken++
		l, _, err = updater.Apply(old, update, 1<<24)
		u = *update
	}
	var readErr error
	if inBatch {
		readErr = readBatch(t.Context(), list, []updater.Want{{List: old.Name}}, func(_ int, u *updater.Update) { take(u) })
	} else {
		readErr = readOne(t.Context(), list, -1, old.Name, take)
	}
	if readErr == nil {
		testkit.Equal(t, "updates taken", taken, 1)
	}
	return l, u, errors.Join(readErr, err)
}

// answerAbout is the answer with the message of one list.
func answerAbout(inBatch bool, list []byte) []byte {
	if inBatch {
		return batch(list)
	}
	return list
}

var inBatchOrNot = []bool{true, false}

func TestLongListsAreDecodedWhileTheyCome(t *testing.T) {
	testkit.Long(t)
	for name, n := range map[string]int{"se-4b": 1_000_000, "x-8b": 200_000, "x-16b": 80_000, "gc-32b": 40_000} {
		m, entries := fullList(t, name, n)
		raw := inOrder(t, m)
		testkit.Between(t, name+": bytes of a long message", int64(len(raw)), maxWhole+1, math.MaxInt64)
		for _, inBatch := range inBatchOrNot {
			l, u, err := streamed(t, inBatch, bytes.NewReader(answerAbout(inBatch, raw)), updater.List{Name: name})
			testkit.Must(t, err)
			came := u.Additions[0].Reader.(*riceReader).buf != nil
			got := []any{bytes.Equal(all(t, l), entries), u.MinimumWait, came}
			testkit.Equal(t, name+": the entries, the wait, and that it was decoded while it came", got, []any{true, time.Hour, true})
		}
	}
}

// inOrder writes a list in the order of the numbers of its fields: Go writes the additions, as part of a oneof, behind all else.
func inOrder(t testing.TB, m *sbv5.HashList) []byte {
	t.Helper()
	head := marshal(t, &sbv5.HashList{Name: m.Name, Version: m.Version, PartialUpdate: m.PartialUpdate})
	additions := marshal(t, &sbv5.HashList{CompressedAdditions: m.CompressedAdditions})
	tail := marshal(t, &sbv5.HashList{CompressedRemovals: m.CompressedRemovals, MinimumWaitDuration: m.MinimumWaitDuration, Sha256Checksum: m.Sha256Checksum})
	return slices.Concat(head, additions, tail)
}

func TestStreamedAnswersInAllOrders(t *testing.T) {
	streamAll(t)
	m, entries := fullList(t, "se-4b", 1000)
	rest := proto.Clone(m).(*sbv5.HashList)
	rest.CompressedAdditions = nil
	additions := marshal(t, &sbv5.HashList{CompressedAdditions: m.CompressedAdditions})
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("?"))
	for name, raw := range map[string][]byte{
		"as Go writes it":         marshal(t, m),
		"in the order of numbers": inOrder(t, m),
		"additions first":         slices.Concat(additions, marshal(t, rest)),
		"additions last":          slices.Concat(marshal(t, rest), additions),
		"unknown fields all over": slices.Concat(unknown, marshal(t, m), unknown),
	} {
		for way, read := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytewise": iotest.OneByteReader, "EOF with data": iotest.DataErrReader,
		} {
			for _, inBatch := range inBatchOrNot {
				answer := slices.Concat(unknown, answerAbout(inBatch, raw), unknown)
				l, _, err := streamed(t, inBatch, read(bytes.NewReader(answer)), updater.List{Name: "se-4b"})
				testkit.Is(t, fmt.Sprint(name, ", ", way, ", in a batch: ", inBatch), err, nil)
				testkit.Equal(t, name+", "+way, all(t, l), entries)
			}
		}
	}
	head := marshal(t, &sbv5.HashList{Name: m.Name, Version: m.Version})
	partial := marshal(t, &sbv5.HashList{PartialUpdate: true})
	removals := marshal(t, &sbv5.HashList{CompressedRemovals: protocoltest.EncodeRice32([]uint32{0})})
	for name, raw := range map[string][]byte{
		"additions twice":         slices.Concat(marshal(t, m), additions),
		"partial behind them":     slices.Concat(inOrder(t, m), partial),
		"no checksum at all":      slices.Concat(head, additions),
		"removals behind them":    slices.Concat(marshal(t, m), removals),
		"removals before them":    slices.Concat(marshal(t, rest), removals, additions),
		"a group":                 slices.Concat(marshal(t, m), protowire.AppendTag(nil, 20, protowire.StartGroupType)),
		"another name":            slices.Concat(marshal(t, m), marshal(t, &sbv5.HashList{Name: "mw-4b"})),
		"a field that is too big": slices.Concat(marshal(t, rest), protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.BytesType), 1<<40)),
		"fields without end":      bytes.Repeat(unknown, maxFields+1),
	} {
		for _, inBatch := range inBatchOrNot {
			_, _, err := streamed(t, inBatch, bytes.NewReader(answerAbout(inBatch, raw)), updater.List{Name: "se-4b"})
			testkit.Is(t, fmt.Sprint(name, ", in a batch: ", inBatch), err, updater.ErrMalformed)
		}
	}
}

// Wherever an answer breaks off, the whole request has failed, also after the last entry. The answer about one list does not tell
// where it ends: where it has been cut between two fields the list lacks what it needs, and HTTP says the rest.
func TestAnswersThatBreakOff(t *testing.T) {
	m, _ := fullList(t, "se-4b", 100)
	broken := errors.New("connection reset")
	for _, inBatch := range []bool{false, true} {
		if inBatch {
			streamAll(t)
		}
		raw := answerAbout(inBatch, inOrder(t, m))
		for n := range len(raw) {
			for want, body := range map[error]io.Reader{
				updater.ErrMalformed: bytes.NewReader(raw[:n]),
				broken:               io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(broken)),
			} {
				_, _, err := streamed(t, inBatch, body, updater.List{Name: "se-4b"})
				testkit.Is(t, fmt.Sprintf("in a batch: %t, cut at %d of %d", inBatch, n, len(raw)), err, want)
			}
		}
	}
}

// An update that is refused is read to its end, so that the next list can be.
func TestListsBehindARefusedOne(t *testing.T) {
	streamAll(t)
	first, _ := fullList(t, "se-4b", 100_000)
	second, entries := fullList(t, "mw-4b", 1000)
	var got updater.List
	var errs []error
	err := readBatch(t.Context(), bytes.NewReader(batch(inOrder(t, first), inOrder(t, second))), []updater.Want{{List: "se-4b"}, {List: "mw-4b"}}, func(i int, u *updater.Update) {
		l, _, err := updater.Apply(updater.List{Name: []string{"se-4b", "mw-4b"}[i]}, u, 5000) // too few for the first one
		got, errs = l, append(errs, err)
	})
	testkit.Must(t, err)
	testkit.Is(t, "the first list", errs[0], updater.ErrMalformed)
	testkit.Equal(t, "the second list", all(t, got), entries)
}

// What is decoded while it comes is what is decoded from the whole message.
func FuzzStreamedList(f *testing.F) {
	addListSeeds(f)
	held := heldLists()
	f.Fuzz(func(t *testing.T, raw []byte) {
		streamAll(t)
		m := new(sbv5.HashList)
		wholeErr := proto.Unmarshal(raw, m)
		width, err := updater.Width(m.GetName())
		if err != nil { // nobody asks for such a list
			return
		}
		old := held[width]
		old.Name = m.GetName()
		var want updater.List
		if wholeErr == nil {
			want, _, wholeErr = updater.Apply(old, updateOf(t.Context(), m), 1000)
		}
		for _, inBatch := range inBatchOrNot {
			got, _, err := streamed(t, inBatch, bytes.NewReader(answerAbout(inBatch, raw)), old)
			switch {
			case err != nil && !errors.Is(err, updater.ErrMalformed) && !errors.Is(err, updater.ErrChecksum):
				t.Errorf("streamed: %v", err)
			case err == nil && wholeErr != nil:
				t.Errorf("streamed it is taken, whole: %v", wholeErr)
			case err == nil && (got.Checksum != want.Checksum || !bytes.Equal(got.Version, want.Version)):
				t.Errorf("streamed %v, whole %v", got, want)
			case err != nil && wholeErr == nil && !behind(raw):
				t.Errorf("whole it is taken, streamed: %v", err)
			}
			if wholeErr == nil {
				_, _, err := streamed(t, inBatch, bytes.NewReader(answerAbout(inBatch, inOrder(t, m))), old)
				testkit.Is(t, "streamed in order what is taken whole", err, nil)
			}
		}
	})
}

// behind reports whether something stands behind additions that a stream cannot
// take there, or additions are there that no writer would write so.
func behind(raw []byte) bool {
	for fields := 0; len(raw) > 0; fields++ {
		field, kind, n := protowire.ConsumeField(raw)
		if n < 0 || widthOfField[field] > 0 || kind == protowire.StartGroupType || fields > maxFields {
			return true
		}
		raw = raw[n:]
	}
	return false
}

// TestAShortAnswerTakesLittleMemory is about the answer for a list that has not changed.
func TestAShortAnswerTakesLittleMemory(t *testing.T) {
	const answers, most = 100, 16 << 10
	raw := marshal(t, &sbv5.HashList{Name: "se-4b", Version: []byte{7}, MinimumWaitDuration: durationpb.New(time.Hour)})
	taken := 0
	got := allocated(func() {
		for range answers {
			testkit.Must(t, readOne(t.Context(), bytes.NewReader(raw), int64(len(raw)), "se-4b", func(*updater.Update) { taken++ }))
		}
	})
	testkit.Between(t, "bytes of memory that an answer takes", got/answers, 0, most)
	testkit.Equal(t, "answers taken", taken, answers)
}

// The schemas promise the order. Google's client for Web Risk sorts all the same, and so do we:
// the checksum says whether the entries are right.
func TestRawPrefixesAreSorted(t *testing.T) {
	for _, test := range []struct {
		size      int32
		raw, want string
	}{
		{4, "aaaabbbbcccc", "aaaabbbbcccc"},
		{4, "ccccaaaabbbb", "aaaabbbbcccc"},
		{5, "bbbbbaaaabaaaaa", "aaaaaaaaabbbbbb"},
		{32, strings.Repeat("b", 32) + strings.Repeat("a", 32), strings.Repeat("a", 32) + strings.Repeat("b", 32)},
		{4, "", ""},
	} {
		entries, err := rawEntries(t.Context(), test.size, []byte(test.raw))
		testkit.Must(t, err)
		got, err := io.ReadAll(entries.Reader)
		testkit.Must(t, err)
		want := []any{test.want, int(test.size), len(test.want) / int(test.size)}
		testkit.Equal(t, test.raw+": entries, width and count", []any{string(got), entries.Width, entries.Count}, want)
	}
	for size, bytes := range map[int32]int{3: 12, 33: 66, 5: 12, 0: 0, -4: 12} {
		_, err := rawEntries(t.Context(), size, make([]byte, bytes))
		testkit.Is(t, fmt.Sprintf("%d bytes of %d", bytes, size), err, updater.ErrMalformed)
	}
}

func TestRadixSortSortsAsTheLibraryDoes(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	masks := []uint32{0, 1, 0xff, 0xff00, 0xff000000, 0x00ffff00, 0xffffffff}
	for _, size := range []int{0, 1, 2, fewNumbers, fewNumbers + 1, 1000, 100_000} {
		for _, mask := range masks {
			numbers := make([]uint32, size)
			for i := range numbers {
				numbers[i] = chance.Uint32() & mask
			}
			want := slices.Clone(numbers)
			slices.Sort(want)
			radixSort(numbers, 24)
			testkit.Equal(t, fmt.Sprintf("%d numbers with the mask %#x are sorted", size, mask), slices.Equal(numbers, want), true)
		}
	}
}

// longerMessage returns a full update of a list: longer entries, then two of four bytes.
func longerMessage(t *testing.T, longer map[int][]byte, sorted ...string) []byte {
	t.Helper()
	raw := marshal(t, &sbv5.HashList{Name: "se-4b", Version: []byte{1}})
	raw = AppendLonger(raw, longer)
	plan := func(yield func([]byte) bool) { yield([]byte("ccca" + "cccb")) }
	p, err := PlanRice(4, plan)
	testkit.Must(t, err)
	raw = p.AppendField(raw, 4, plan)
	sum := sha256.New()
	for _, e := range sorted {
		io.WriteString(sum, e)
	}
	return protowire.AppendBytes(protowire.AppendTag(raw, 7, protowire.BytesType), sum.Sum(nil))
}

// A list with longer entries is read whole and while it comes, with the order and the checksum over all of them.
func TestLongerEntriesAreRead(t *testing.T) {
	longer := map[int][]byte{5: []byte("aaaab" + "cccab"), 32: bytes.Repeat([]byte("d"), 32)}
	raw := longerMessage(t, longer, "aaaab", "ccca", "cccab", "cccb", string(longer[32]))
	for _, whole := range []bool{true, false} {
		if !whole {
			streamAll(t)
		}
		l, _, err := streamed(t, false, bytes.NewReader(raw), updater.List{Name: "se-4b"})
		testkit.Must(t, err)
		testkit.Equal(t, "entries and widths", []any{l.Set.Len(), l.Set.Widths()}, []any{5, []int{4, 5, 32}})
	}
}

func TestBadLongerEntriesAreRefused(t *testing.T) {
	many := map[int][]byte{}
	for width := 5; width <= 32; width++ {
		many[width] = nil
	}
	for _, tc := range []struct {
		name string
		list string
		raw  []byte
	}{
		{"not longer", "se-4b", AppendLonger(nil, map[int][]byte{4: []byte("aaaa")})},
		{"shorter", "se-8b", AppendLonger(nil, map[int][]byte{5: []byte("aaaaa")})},
		{"too long", "se-4b", AppendLonger(nil, map[int][]byte{33: make([]byte, 33)})},
		{"half an entry", "se-4b", AppendLonger(nil, map[int][]byte{5: []byte("aaaaab")})},
		{"no name of a list", "se", AppendLonger(nil, map[int][]byte{5: []byte("aaaaa")})},
		{"no message", "se-4b", protowire.AppendBytes(protowire.AppendTag(nil, fieldLonger, protowire.BytesType), []byte{0xff})},
		{"too many sets", "se-4b", AppendLonger(AppendLonger(nil, many), many)},
	} {
		u := withFields(t, tc.list, tc.raw)
		if u.Err == nil || len(u.Additions) > 0 || tc.list != "se" && !errors.Is(u.Err, updater.ErrMalformed) {
			t.Errorf("%s: %v", tc.name, u.Err)
		}
	}
	other := protowire.AppendVarint(protowire.AppendTag(nil, fieldLonger, protowire.VarintType), 7)
	u := withFields(t, "se-4b", other)
	testkit.Equal(t, "another kind of field", []any{u.Err, len(u.Additions)}, []any{nil, 0})
}

// withFields is the update that a list is with more fields.
func withFields(t *testing.T, name string, raw []byte) *updater.Update {
	t.Helper()
	list := new(sbv5.HashList)
	testkit.Must(t, proto.Unmarshal(append(marshal(t, &sbv5.HashList{Name: name, Version: []byte{1}}), raw...), list))
	return updateOf(t.Context(), list)
}
