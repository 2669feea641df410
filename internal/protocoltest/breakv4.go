package protocoltest

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// spoilV4 applies the content faults to an update and returns its message of v4.
func (f *Fault) spoilV4(u update) *listUpdate {
	if f.V4.NoCompression {
		u.ensureAdditions(4, 1)
	}
	m := u.list.responseV4(f.spoilDiff(u))
	if f.V4.NoCompression {
		for _, set := range m.Additions {
			set.CompressionType = sbv4.CompressionType_COMPRESSION_TYPE_UNSPECIFIED
		}
	}
	return m
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
		if f.V4.TwoAnswers {
			m.ListUpdateResponses = append(m.ListUpdateResponses, proto.CloneOf(answer))
		}
	}
}
