package protocoltest

// FaultV4 are the faults that only answers of v4 can have.
type FaultV4 struct {
	TwoAnswers    bool // a second answer for a list
	NoCompression bool // additions of unspecified compression type
}

// shownBy reports whether the answer to a request has what the fault changes.
func (f FaultV4) shownBy(q *query) bool { return f == FaultV4{} || q.to().service == serviceV4 }

// ListFaultsV4 returns every fault that a client of threatListUpdates.fetch must
// survive, by name; for "slow" see ListFaults.
func ListFaultsV4() map[string]Fault {
	faults := ListFaultsWebRisk()
	delete(faults, "status 401") // v4 takes no access token
	faults["wrong types"] = Fault{WrongName: true}
	faults["two answers for one list"] = Fault{V4: FaultV4{TwoAnswers: true}}
	faults["negative minimum wait"] = Fault{NegativeWait: true}
	faults["no compression type"] = Fault{V4: FaultV4{NoCompression: true}}
	return faults
}

// SearchFaultsV4 returns every fault that a client of fullHashes.find must survive,
// by name; for "slow" see ListFaults.
func SearchFaultsV4() map[string]Fault { return SearchFaults() }
