package protocoltest

import (
	"crypto/sha512"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// Fault is one way to spoil an answer. The fields may be combined where that makes
// sense; of those that replace the whole answer the first in this order wins. The
// zero Fault spoils nothing.
type Fault struct {
	// The whole answer, for every method.

	Delay            time.Duration // the server thinks so long before it answers
	CloseConnection  bool          // no answer at all
	Status           int           // this status with Google's JSON error body
	RetryAfter       time.Duration // header Retry-After beside Status
	Redirect         string        // 302 to this URL
	WrongContentType bool          // 200 with an HTML page, as captive portals do
	Garbage          bool          // 200 with bytes that are no protobuf message
	EndlessBody      bool          // 200 with a body that never ends
	CutBody          bool          // the body breaks off half-way

	// The frame of a list answer; not in Web Risk.

	WrongName   bool // the list carries another name, or other types
	WrongOrder  bool // lists in another order; with one list: WrongName; v5 only
	MissingList bool // one list fewer; for get: an empty message; v5 only

	// The content of one list, or of all lists in the answer. An answer that has
	// nothing to spoil ("nothing changed") is given a change first.

	WrongChecksum      bool
	NoChecksum         bool // changes without checksum
	LyingCount         bool // entries_count far above what the data can hold
	TruncatedRice      bool // the data ends inside a value
	BadRiceParameter   bool
	RemovalOutOfRange  bool // removes an index behind the end; for a full update: any
	PartialWithoutBase bool // partial_update though the client sent no version
	WrongWidth         bool // additions of another width than the name says; v5 only
	NoVersion          bool // in Web Risk no new_version_token
	NegativeWait       bool // not in Web Risk
	Duplicate          bool // an addition that is there already

	// The same for answers that are coded as Web Risk's.

	ShortChecksum      bool // 31 bytes
	NegativeFirstValue bool // of Rice data, right as a number of 32 bits
	LargeFirstValue    bool // likewise, over 32 bits
	RaggedRaw          bool // a stray byte after raw hashes
	ShortPrefix        bool // raw hashes of 3 bytes
	LongPrefix         bool // raw hashes of 33 bytes
	NoResponseType     bool // neither full nor partial
	V4                 FaultV4

	// Times of Web Risk, in an answer that is otherwise good.

	NoNextDiff             bool // no recommended_next_diff
	PastNextDiff           bool // an hour ago
	FarNextDiff            bool // in ten years
	NoExpireTime           bool // of each full hash
	PastExpireTime         bool // likewise, an hour ago
	NoNegativeExpireTime   bool
	PastNegativeExpireTime bool // an hour ago

	// ShortHash puts a full hash of 31 bytes into the answer of a search.
	ShortHash bool

	// List restricts a fault to requests that name this list, and content faults
	// and WrongName to this list in the answer. Empty: all.
	List string
	// Batch restricts a fault to requests for several lists.
	Batch bool
}

// queuedFault is a Fault that waits for left more requests of a method.
type queuedFault struct {
	method string // empty: any
	left   int
	fault  Fault
}

// Break queues a fault for the next n requests of a method: "batchGet", "get",
// "list", "search", of Web Risk "computeDiff", "searchOne", "update" for all that fetch
// the contents of lists, or "" for any; "search" stands for the searches of all
// services. Each request takes the oldest fault that it can
// show; a fault of list contents waits for a list request of a protocol that has such
// a fault, ShortHash for a search. A request refused with 400, 401, 403, 404 or 405
// takes none.
func (s *Server) Break(method string, n int, f Fault) {
	s.locked(func() { s.faults = append(s.faults, queuedFault{method: method, left: n, fault: f}) })
}

// Repair drops all queued faults.
func (s *Server) Repair() { s.locked(func() { s.faults = nil }) }

// takeFault returns the fault for a request and whether there is one.
func (s *Server) takeFault(q *query) (Fault, bool) {
	i := slices.IndexFunc(s.faults, func(w queuedFault) bool { return w.left > 0 && w.fits(q) })
	if i < 0 {
		return Fault{}, false
	}
	f := s.faults[i].fault
	if s.faults[i].left--; s.faults[i].left == 0 {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return f, true
}

func (w *queuedFault) fits(q *query) bool {
	f := &w.fault
	switch {
	case !q.is(w.method):
		return false
	case f.Batch && (!q.updatesLists() || len(q.names) < 2):
		return false
	case !f.shownBy(q):
		return false
	case f.List != "" && !slices.Contains(q.names, f.List):
		return false
	case (f.breaksContent(q) || f.breaksFrame(q)) && !q.updatesLists():
		return false
	case f.ShortHash && !q.searches():
		return false
	}
	return true
}

// shownBy reports whether the answers of the protocol and the method have what the
// fault changes.
func (f *Fault) shownBy(q *query) bool {
	return q.to().service.shows(f, q) && f.V4.shownBy(q)
}

// breaksFrame reports whether the fault makes the client refuse a whole list answer
// that arrived well.
func (f *Fault) breaksFrame(q *query) bool { return q.to().service.frame(f) }

// breaksContent reports whether the fault spoils single lists.
func (f *Fault) breaksContent(q *query) bool { return q.to().service.content(f) }

// breaksList reports whether the fault is one that spoils a list by way of every service.
func (f *Fault) breaksList() bool {
	return f.WrongChecksum || f.NoChecksum || f.LyingCount || f.TruncatedRice ||
		f.BadRiceParameter || f.RemovalOutOfRange || f.PartialWithoutBase || f.NoVersion || f.Duplicate
}

// notV5 reports whether no answer of v5 can show the fault.
func (f *Fault) notV5() bool { return f.breaksDiff() || f.oddNextDiff() || f.oddExpiry() }

// onlyV5 reports whether only answers of v5 can show the fault.
func (f *Fault) onlyV5() bool { return f.WrongOrder || f.MissingList || f.WrongWidth }

// spoils reports whether the fault spoils this list in the answer to a request.
func (f *Fault) spoils(q *query, list string) bool {
	return f.breaksContent(q) && (f.List == "" || f.List == list)
}

// breaksRequest reports whether no client can make use of the answer.
func (f *Fault) breaksRequest(q *query) bool {
	return f.CloseConnection || f.Status != 0 && f.Status != http.StatusOK || f.Redirect != "" ||
		f.WrongContentType || f.Garbage || f.EndlessBody || f.CutBody || f.breaksFrame(q) || f.ShortHash
}

// ListFaults returns every fault that a client of lists must survive, by name.
// "slow" takes an hour, so that it needs a synctest bubble or a client with a
// time-out.
func ListFaults() map[string]Fault {
	faults := transportFaults()
	maps.Copy(faults, map[string]Fault{
		"wrong name":                  {WrongName: true},
		"wrong order":                 {WrongOrder: true},
		"missing list":                {MissingList: true},
		"wrong checksum":              {WrongChecksum: true},
		"no checksum":                 {NoChecksum: true},
		"lying count":                 {LyingCount: true},
		"truncated Rice data":         {TruncatedRice: true},
		"Rice parameter out of range": {BadRiceParameter: true},
		"removal out of range":        {RemovalOutOfRange: true},
		"partial update without base": {PartialWithoutBase: true},
		"wrong width":                 {WrongWidth: true},
		"no version":                  {NoVersion: true},
		"negative minimum wait":       {NegativeWait: true},
		"duplicate entry":             {Duplicate: true},
	})
	return faults
}

// SearchFaults returns every fault that a client of hashes.search, or of v4's
// fullHashes.find, must survive, by name; for "slow" see ListFaults.
func SearchFaults() map[string]Fault {
	faults := transportFaults()
	faults["full hash of 31 bytes"] = Fault{ShortHash: true}
	return faults
}

// transportFaults are the faults that any answer can have.
func transportFaults() map[string]Fault {
	return map[string]Fault{
		"status 400":        {Status: http.StatusBadRequest},
		"status 403":        {Status: http.StatusForbidden},
		"status 404":        {Status: http.StatusNotFound},
		"status 429":        {Status: http.StatusTooManyRequests, RetryAfter: time.Hour},
		"status 500":        {Status: http.StatusInternalServerError},
		"status 503":        {Status: http.StatusServiceUnavailable},
		"status 204":        {Status: http.StatusNoContent},
		"connection closed": {CloseConnection: true},
		"body cut":          {CutBody: true},
		"garbage":           {Garbage: true},
		"captive portal":    {WrongContentType: true},
		"redirect":          {Redirect: "https://redirect.invalid/v5/elsewhere"},
		"endless body":      {EndlessBody: true},
		"slow":              {Delay: time.Hour},
	}
}

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
		m.CompressedAdditions = &sbv5.HashList_AdditionsEightBytes{AdditionsEightBytes: encode64(1, func(int) wide { return wide{1} })}
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
