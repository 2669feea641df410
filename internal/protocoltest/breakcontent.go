package protocoltest

import (
	"crypto/sha512"
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// spoil applies the content faults to an update and returns its message. The
// faults that need a plausible update change it before it is encoded, the others
// change the message.
func (f *Fault) spoil(u update) *sbv5.HashList {
	needsChange := f.WrongChecksum || f.NoChecksum || f.LyingCount || f.TruncatedRice || f.BadRiceParameter
	if needsChange {
		u.ensureAdditions(listWidth(u.list.name), 1)
	}
	f.spoilUpdate(&u)
	m := u.message()
	f.spoilFields(m, listWidth(u.list.name))
	return m
}

// spoilUpdate applies the faults of what an update says, however it is written.
func (f *Fault) spoilUpdate(u *update) {
	if f.PartialWithoutBase {
		u.pretendPartial()
	}
	if f.Duplicate {
		u.repeatEntry()
	}
	if f.RemovalOutOfRange {
		u.removals = []uint32{uint32(len(u.base))}
	}
}

// ensureAdditions gives an update with fewer than n additions of that width some
// that no version holds, with the checksum that belongs to them.
func (u *update) ensureAdditions(width, n int) {
	for _, e := range u.additions {
		if len(e) == width {
			n--
		}
	}
	held := u.target.entries
	for range n {
		more := []string{u.unusedEntry(width)}
		u.additions, held = merge(u.additions, more), merge(held, more)
		u.checksum = checksum(held)
	}
}

// unusedEntry returns an entry that is neither in the base nor in the target, nor
// added by the update.
func (u *update) unusedEntry(width int) string {
	for i := uint64(0); ; i++ {
		sum := sha512.Sum512(binary.BigEndian.AppendUint64(nil, i))
		entry := string(sum[:width])
		if !contains(u.base, entry) && !contains(u.target.entries, entry) && !contains(u.additions, entry) {
			return entry
		}
	}
}

// pretendPartial says partial_update although all entries are sent. Where the
// client did send a version its base must not fit: unless that is sure the
// checksum is spoilt too.
func (u *update) pretendPartial() {
	u.partial = true
	u.removals, u.additions = nil, u.target.entries
	u.checksum = checksum(u.target.entries)
	if u.sent != nil {
		u.checksum = digest(u.checksum)
	}
}

// repeatEntry adds an entry that the list holds already: of the base if the update
// is partial, otherwise one of its own additions.
func (u *update) repeatEntry() {
	kept := patch(u.base, u.removals, nil)
	u.checksum = checksum(u.target.entries)
	switch {
	case len(kept) > 0:
		u.additions = merge(u.additions, kept[:1])
	case len(u.additions) > 0:
		u.additions = merge(u.additions[:1], u.additions)
	default:
		entry := u.unusedEntry(listWidth(u.list.name))
		u.additions = []string{entry, entry}
	}
}

// spoilFields applies the faults that show in the fields of a message.
func (f *Fault) spoilFields(m *sbv5.HashList, width int) {
	if f.WrongChecksum {
		m.Sha256Checksum = digest(m.Sha256Checksum)
	}
	if f.NoChecksum {
		m.Sha256Checksum = nil
	}
	if f.NoVersion {
		m.Version = nil
	}
	if f.NegativeWait {
		m.MinimumWaitDuration = durationpb.New(-time.Second)
	}
	if f.LyingCount || f.TruncatedRice || f.BadRiceParameter {
		f.spoilRice(m, width)
	}
	if f.WrongWidth && width == 4 {
		m.CompressedAdditions = &sbv5.HashList_AdditionsEightBytes{AdditionsEightBytes: EncodeRice64([]uint64{1})}
	} else if f.WrongWidth {
		m.CompressedAdditions = &sbv5.HashList_AdditionsFourBytes{AdditionsFourBytes: EncodeRice32([]uint32{1})}
	}
}

// spoilRice spoils the coding of the additions, which must be there.
func (f *Fault) spoilRice(m *sbv5.HashList, width int) {
	parameter, count, data := riceFields(m)
	if *count == 0 { // a single value has no data to spoil
		*parameter, *count, *data = int32(8*width-2), 1, make([]byte, width)
	}
	if f.LyingCount {
		*count = 1 << 30
	}
	if f.TruncatedRice {
		*data = (*data)[:len(*data)/2]
	}
	if f.BadRiceParameter {
		*parameter = int32(8*width - 1) // one above the highest legal one
	}
}

// riceFields returns the fields that the codings of all widths have in common.
func riceFields(m *sbv5.HashList) (parameter, count *int32, data *[]byte) {
	switch a := m.CompressedAdditions.(type) {
	case *sbv5.HashList_AdditionsFourBytes:
		return &a.AdditionsFourBytes.RiceParameter, &a.AdditionsFourBytes.EntriesCount, &a.AdditionsFourBytes.EncodedData
	case *sbv5.HashList_AdditionsEightBytes:
		return &a.AdditionsEightBytes.RiceParameter, &a.AdditionsEightBytes.EntriesCount, &a.AdditionsEightBytes.EncodedData
	case *sbv5.HashList_AdditionsSixteenBytes:
		return &a.AdditionsSixteenBytes.RiceParameter, &a.AdditionsSixteenBytes.EntriesCount, &a.AdditionsSixteenBytes.EncodedData
	case *sbv5.HashList_AdditionsThirtyTwoBytes:
		return &a.AdditionsThirtyTwoBytes.RiceParameter, &a.AdditionsThirtyTwoBytes.EntriesCount, &a.AdditionsThirtyTwoBytes.EncodedData
	}
	return new(int32), new(int32), new([]byte)
}
