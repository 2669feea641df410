package protocoltest

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// defaultPageSize is the number of lists per page when the client names none.
const defaultPageSize = 100

// hashLists returns the answer of batchGet or get, all its lists known, and notes what
// it says about each list.
func (s *Server) hashLists(q *query, f *Fault, a *reply) (proto.Message, error) {
	var messages []*sbv5.HashList
	for _, name := range q.names {
		l := s.lists[name]
		u := l.updateTo(l.limited(q.maxDatabase), s.versionFor(q, name), q.maxUpdate)
		s.owners[string(u.target.id)] = name
		spoilt := f.spoils(q, name)
		if spoilt {
			messages = append(messages, f.spoil(u))
		} else {
			messages = append(messages, u.message())
		}
		a.served = append(a.served, served{
			name: name, spoilt: spoilt, version: u.target.id,
			changed: !u.partial || u.changes(), wait: u.wait, entries: u.target.entries,
		})
	}
	messages = f.spoilFrame(messages)
	if q.method == methodBatchGet {
		return &sbv5.BatchGetHashListsResponse{HashLists: messages}, nil
	}
	if len(messages) == 0 {
		return &sbv5.HashList{}, nil
	}
	return messages[0], nil
}

// versionOwners returns the list of each version that the service of the request ever
// served.
func (s *Server) versionOwners(q *query) map[string]string {
	if q.webRisk() {
		return s.tokens
	}
	return s.owners
}

// versionFor returns the version that the client sent for a list, nil if none. It
// is found by the version itself, since the order of versions means nothing.
func (s *Server) versionFor(q *query, name string) []byte {
	for _, v := range q.versions {
		if s.owners[string(v)] == name {
			return v
		}
	}
	return nil
}

// spoilFrame applies the faults of names, order and number.
func (f *Fault) spoilFrame(messages []*sbv5.HashList) []*sbv5.HashList {
	wrongName := f.WrongName || f.WrongOrder && len(messages) < 2
	for _, m := range messages {
		if wrongName && (f.List == "" || f.List == m.Name) {
			m.Name = "not-" + m.Name
		}
	}
	if f.WrongOrder {
		slices.Reverse(messages)
	}
	if f.MissingList {
		return messages[:len(messages)-1]
	}
	return messages
}

// page returns one page of hashLists.list, whose token is the number of lists on
// the pages before.
func (s *Server) page(q *query, _ *Fault, _ *reply) (proto.Message, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.lists)) {
		if s.offers(q, name) {
			names = append(names, name)
		}
	}
	start, err := strconv.Atoi("0" + q.pageToken)
	if err != nil || start > len(names) {
		return nil, errors.New("pageToken is not one of ours")
	}
	size := q.pageSize
	if size == 0 {
		size = defaultPageSize
	}
	end := min(len(names), start+size)
	m := &sbv5.ListHashListsResponse{}
	for _, name := range names[start:end] {
		m.HashLists = append(m.HashLists, &sbv5.HashList{Name: name, Metadata: metadata(name)})
	}
	if end < len(names) {
		m.NextPageToken = strconv.Itoa(end)
	}
	return m, nil
}

func metadata(name string) *sbv5.HashListMetadata {
	m := &sbv5.HashListMetadata{Description: "test list " + name}
	if isLikelySafe(name) {
		m.LikelySafeTypes = []sbv5.LikelySafeType{sbv5.LikelySafeType_GENERAL_BROWSING}
	} else {
		m.ThreatTypes = []sbv5.ThreatType{threatOf(name)}
	}
	m.HashLength = map[int]sbv5.HashListMetadata_HashLength{
		4:  sbv5.HashListMetadata_FOUR_BYTES,
		8:  sbv5.HashListMetadata_EIGHT_BYTES,
		16: sbv5.HashListMetadata_SIXTEEN_BYTES,
		32: sbv5.HashListMetadata_THIRTY_TWO_BYTES,
	}[listWidth(name)]
	return m
}

// isLikelySafe reports whether a list holds likely-safe hashes: the global cache.
func isLikelySafe(name string) bool { return strings.HasPrefix(name, "gc-") }

// threatOf returns the threat type that a list name implies.
func threatOf(name string) sbv5.ThreatType {
	base, _, _ := strings.Cut(name, "-")
	switch base {
	case "se":
		return sbv5.ThreatType_SOCIAL_ENGINEERING
	case "uws", "uwsa":
		return sbv5.ThreatType_UNWANTED_SOFTWARE
	case "pha":
		return sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION
	}
	return sbv5.ThreatType_MALWARE
}
