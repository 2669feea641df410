package protocoltest

import "github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"

// spoilDiff applies the content faults to an update and returns its message of Web Risk.
// Wherever possible, the checksum fits the list that a client gets which does not
// see the fault.
func (f *Fault) spoilDiff(u update) *diffMessage {
	f.spoilUpdate(&u)
	switch {
	case f.breaksRice():
		u.ensureAdditions(4, 2)
		u.rice = true
	case f.RaggedRaw || f.UnsortedRaw:
		u.ensureAdditions(5, 2)
	case f.ShortPrefix:
		u.ensureAdditions(minEntryBytes-1, 1)
	case f.LongPrefix:
		u.ensureAdditions(maxEntryBytes+1, 1)
	case f.WrongChecksum || f.NoChecksum:
		u.ensureAdditions(4, 1)
	}
	m := u.diff()
	f.spoilCoding(m.GetAdditions().GetRiceHashes(), u.additions)
	for _, raw := range m.GetAdditions().GetRawHashes() {
		f.spoilRaw(raw)
	}
	f.spoilResponse(m)
	return m
}

// spoilResponse applies the faults that show in the fields of an answer for a list.
func (f *Fault) spoilResponse(m *diffMessage) {
	if f.NoResponseType {
		m.ResponseType = wrv1.ComputeThreatListDiffResponse_RESPONSE_TYPE_UNSPECIFIED
	}
	if f.NoVersion {
		m.NewVersionToken = nil
	}
	if f.WrongChecksum {
		m.Checksum.Sha256 = digest(m.Checksum.Sha256)
	}
	if f.ShortChecksum {
		m.Checksum.Sha256 = m.Checksum.Sha256[:31]
	}
	if f.NoChecksum {
		m.Checksum = nil
	}
}

// breaksRice reports whether the fault spoils the Rice coding of additions.
func (f *Fault) breaksRice() bool {
	return f.LyingCount || f.TruncatedRice || f.BadRiceParameter || f.NegativeFirstValue || f.LargeFirstValue
}

// spoilCoding spoils Rice-coded additions, if there are any.
func (f *Fault) spoilCoding(rice *wrv1.RiceDeltaEncoding, additions []string) {
	if rice == nil {
		return
	}
	if f.LyingCount {
		rice.EntryCount = 1 << 30
	}
	if f.TruncatedRice {
		rice.EncodedData = rice.EncodedData[:len(rice.EncodedData)/2]
	}
	if f.BadRiceParameter {
		rice.RiceParameter = maxParameter + 1
		rice.EncodedData = gaps32(riceNumbers(additions), maxParameter+1)
	}
	if f.NegativeFirstValue {
		rice.FirstValue -= 1 << 32
	}
	if f.LargeFirstValue {
		rice.FirstValue += 1 << 32
	}
}

// spoilRaw spoils raw additions of one length.
func (f *Fault) spoilRaw(raw *wrv1.RawHashes) {
	if f.RaggedRaw {
		raw.RawHashes = append(raw.RawHashes, 0)
	}
	if width := int(raw.PrefixSize); f.UnsortedRaw && len(raw.RawHashes) > width {
		raw.RawHashes = append(raw.RawHashes[width:], raw.RawHashes[:width]...)
	}
}
