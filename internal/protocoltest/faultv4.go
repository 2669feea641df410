package protocoltest

import "maps"

// ListFaultsV4 returns every fault that a client of threatListUpdates.fetch must
// survive, by name; for "slow" see ListFaults.
func ListFaultsV4() map[string]Fault {
	faults := transportFaults()
	maps.Copy(faults, map[string]Fault{
		"wrong types":                 {WrongName: true},
		"two answers for one list":    {TwoAnswers: true},
		"negative minimum wait":       {NegativeWait: true},
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
		"no compression type":         {NoCompression: true},
	})
	return faults
}

// SearchFaultsV4 returns every fault that a client of fullHashes.find must survive,
// by name; for "slow" see ListFaults.
func SearchFaultsV4() map[string]Fault { return SearchFaults() }

// notV5 reports whether no answer of v5 can show the fault.
func (f *Fault) notV5() bool {
	return f.TwoAnswers || f.ShortChecksum || f.NegativeFirstValue || f.LargeFirstValue ||
		f.RaggedRaw || f.UnsortedRaw || f.ShortPrefix || f.LongPrefix ||
		f.NoResponseType || f.NoCompression
}

// onlyV5 reports whether only answers of v5 can show the fault.
func (f *Fault) onlyV5() bool { return f.WrongOrder || f.MissingList || f.WrongWidth }
