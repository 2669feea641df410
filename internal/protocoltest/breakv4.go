package protocoltest

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// spoilV4 applies the content faults to an update and returns its message of v4.
// Wherever it can be, the checksum is that of the list which a client gets that does
// not see the fault.
func (f *Fault) spoilV4(u update) *listUpdate {
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
	case f.WrongChecksum || f.NoChecksum || f.NoCompression:
		u.ensureAdditions(4, 1)
	}
	m := u.response()
	for _, set := range m.Additions {
		f.spoilRiceV4(set.RiceHashes, u.additions)
		f.spoilRaw(set.RawHashes)
		if f.NoCompression {
			set.CompressionType = sbv4.CompressionType_COMPRESSION_TYPE_UNSPECIFIED
		}
	}
	f.spoilResponse(m)
	return m
}

// spoilResponse applies the faults that show in the fields of an answer for a list.
func (f *Fault) spoilResponse(m *listUpdate) {
	if f.NoResponseType {
		m.ResponseType = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_RESPONSE_TYPE_UNSPECIFIED
	}
	if f.NoVersion {
		m.NewClientState = nil
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

// spoilRiceV4 spoils a set of Rice-coded additions, if it is one.
func (f *Fault) spoilRiceV4(rice *sbv4.RiceDeltaEncoding, additions []string) {
	if rice == nil {
		return
	}
	if f.LyingCount {
		rice.NumEntries = 1 << 30
	}
	if f.TruncatedRice {
		rice.EncodedData = rice.EncodedData[:len(rice.EncodedData)/2]
	}
	if f.BadRiceParameter {
		rice.RiceParameter = maxParameterV4 + 1
		rice.EncodedData = gaps32(riceNumbers(additions), maxParameterV4+1)
	}
	if f.NegativeFirstValue {
		rice.FirstValue -= 1 << 32
	}
	if f.LargeFirstValue {
		rice.FirstValue += 1 << 32
	}
}

// spoilRaw spoils a set of raw additions, if it is one.
func (f *Fault) spoilRaw(raw *sbv4.RawHashes) {
	if raw == nil {
		return
	}
	if f.RaggedRaw {
		raw.RawHashes = append(raw.RawHashes, 0)
	}
	if width := int(raw.PrefixSize); f.UnsortedRaw && len(raw.RawHashes) > width {
		raw.RawHashes = append(raw.RawHashes[width:], raw.RawHashes[:width]...)
	}
}

// spoilFetch applies the faults that belong to no single list.
func (f *Fault) spoilFetch(m *sbv4.FetchThreatListUpdatesResponse) {
	if f.NegativeWait {
		m.MinimumWaitDuration = durationpb.New(-time.Second)
	}
	for _, answer := range m.ListUpdateResponses {
		t := triple{answer.ThreatType, answer.PlatformType, answer.ThreatEntryType}
		if f.List != "" && f.List != t.list() {
			continue
		}
		if f.WrongName {
			answer.PlatformType = sbv4.PlatformType_CHROME
		}
		if f.TwoAnswers {
			m.ListUpdateResponses = append(m.ListUpdateResponses, proto.CloneOf(answer))
		}
	}
}
