package protocoltest

import (
	"maps"
	"net/http"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// farNextDiff is a recommended_next_diff that a client can hardly live to see.
const farNextDiff = 10 * 365 * 24 * time.Hour

// ListFaultsWebRisk returns every fault that a client of threatLists.computeDiff must
// survive, by name; for "slow" see ListFaults.
func ListFaultsWebRisk() map[string]Fault {
	faults := transportFaults()
	maps.Copy(faults, map[string]Fault{
		"status 401":                  {Status: http.StatusUnauthorized},
		"wrong checksum":              {WrongChecksum: true},
		"checksum of 31 bytes":        {ShortChecksum: true},
		"no checksum":                 {NoChecksum: true},
		"lying count":                 {LyingCount: true},
		"truncated Rice data":         {TruncatedRice: true},
		"Rice parameter out of range": {BadRiceParameter: true},
		"negative first value":        {NegativeFirstValue: true},
		"first value over 32 bits":    {LargeFirstValue: true},
		"removal out of range":        {RemovalOutOfRange: true},
		"partial update without base": {PartialWithoutBase: true},
		"no state":                    {NoVersion: true},
		"duplicate entry":             {Duplicate: true},
		"ragged raw hashes":           {RaggedRaw: true},
		"prefixes of 3 bytes":         {ShortPrefix: true},
		"prefixes of 33 bytes":        {LongPrefix: true},
		"no response type":            {NoResponseType: true},
	})
	return faults
}

// SearchFaultsWebRisk returns every fault that a client of Web Risk's hashes.search
// must survive, by name; for "slow" see ListFaults.
func SearchFaultsWebRisk() map[string]Fault {
	faults := SearchFaults()
	faults["status 401"] = Fault{Status: http.StatusUnauthorized}
	return faults
}

// OddDiffTimes returns faults of recommended_next_diff, by name. The rest of the answer
// is good, and a client must make use of it.
func OddDiffTimes() map[string]Fault {
	return map[string]Fault{
		"no next diff":          {NoNextDiff: true},
		"next diff in the past": {PastNextDiff: true},
		"next diff far away":    {FarNextDiff: true},
	}
}

// OddSearchTimes returns faults of expire_time and negative_expire_time, by name. The
// rest of the answer is good, and a client must make use of it.
func OddSearchTimes() map[string]Fault {
	return map[string]Fault{
		"no expire time":                   {NoExpireTime: true},
		"expire time in the past":          {PastExpireTime: true},
		"no negative expire time":          {NoNegativeExpireTime: true},
		"negative expire time in the past": {PastNegativeExpireTime: true},
	}
}

// breaksDiff reports whether the fault spoils a list in a way that only answers coded as
// only Web Risk's lists can show.
func (f *Fault) breaksDiff() bool {
	return f.ShortChecksum || f.NegativeFirstValue || f.LargeFirstValue ||
		f.RaggedRaw || f.ShortPrefix || f.LongPrefix || f.NoResponseType
}

// notWebRisk reports whether no answer of Web Risk can show the fault: an answer is
// about one list and does not name it, and has no duration.
func (f *Fault) notWebRisk() bool { return f.onlyV5() || f.WrongName || f.NegativeWait }

// oddNextDiff reports whether the fault changes recommended_next_diff.
func (f *Fault) oddNextDiff() bool { return f.NoNextDiff || f.PastNextDiff || f.FarNextDiff }

// oddExpiry reports whether the fault changes expire_time or negative_expire_time.
func (f *Fault) oddExpiry() bool {
	return f.NoExpireTime || f.PastExpireTime || f.NoNegativeExpireTime || f.PastNegativeExpireTime
}

// spoilNextDiff applies the faults of recommended_next_diff.
func (f *Fault) spoilNextDiff(next time.Time) time.Time {
	switch {
	case f.NoNextDiff:
		return time.Time{}
	case f.PastNextDiff:
		return time.Now().Add(-time.Hour)
	case f.FarNextDiff:
		return time.Now().Add(farNextDiff)
	}
	return next
}

// oddTime applies the faults of expire_time, or of negative_expire_time: it returns a time that is
// absent, which is the zero time, in the past, or as it is.
func oddTime(expires, now time.Time, absent, past bool) time.Time {
	switch {
	case absent:
		return time.Time{}
	case past:
		return now.Add(-time.Hour)
	}
	return expires
}

// spoilDiff applies the content faults to an update and returns its message of Web Risk.
// Wherever possible, the checksum fits the list that a client gets which does not
// see the fault.
func (f *Fault) spoilDiff(u update) *diffMessage {
	f.spoilUpdate(&u)
	switch {
	case f.breaksRice():
		u.ensureAdditions(4, 2)
		u.rice = true
	case f.RaggedRaw:
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
		if f.RaggedRaw {
			raw.RawHashes = append(raw.RawHashes, 0)
		}
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
