package protocoltest

import (
	"maps"
	"net/http"
	"time"
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
		f.RaggedRaw || f.UnsortedRaw || f.ShortPrefix || f.LongPrefix || f.NoResponseType
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

// spoilExpiry applies the faults of expire_time.
func (f *Fault) spoilExpiry(expires, now time.Time) time.Time {
	return oddTime(expires, now, f.NoExpireTime, f.PastExpireTime)
}

// spoilNegativeExpiry applies the faults of negative_expire_time.
func (f *Fault) spoilNegativeExpiry(expires, now time.Time) time.Time {
	return oddTime(expires, now, f.NoNegativeExpireTime, f.PastNegativeExpireTime)
}

// oddTime returns a time that is absent, which is the zero time, in the past, or as
// it is.
func oddTime(expires, now time.Time, absent, past bool) time.Time {
	switch {
	case absent:
		return time.Time{}
	case past:
		return now.Add(-time.Hour)
	}
	return expires
}
