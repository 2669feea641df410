package protocoltest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// listed is one line of the file that Load reads.
type listed struct {
	list       string
	expression string
	confirmed  bool // hashes.search knows it too
}

// Load fills a server from a text file with lines
//
//	LIST EXPRESSION [unconfirmed]
//
// such as "se-4b evil.example.com/"; a # begins a comment. An expression without
// slash gets one at its end. Its hash goes into the list, and hashes.search confirms
// it with the threat type that the list name implies, except when the line says
// unconfirmed (then a client asks and learns that all is well) or the list holds
// likely-safe hashes (gc-32b). Load again replaces what the last Load put in. After
// an error nothing has changed.
func Load(s *Server, r io.Reader) error {
	lines, err := readListed(r)
	if err != nil {
		return err
	}
	expressions := map[string][]string{} // as in Server.loaded
	entries := map[string][][]byte{}
	confirmed := map[string]listed{}
	for _, l := range lines {
		hash := sha256.Sum256([]byte(l.expression))
		entries[l.list] = append(entries[l.list], hash[:listWidth(l.list)])
		expressions[l.list] = append(expressions[l.list], l.expression)
		if l.confirmed {
			confirmed[l.list+" "+l.expression] = l
		}
	}
	var before map[string][]string
	s.locked(func() { before, s.loaded = s.loaded, expressions })
	for name, old := range before {
		for _, expression := range old {
			s.RemoveThreat(expression)
		}
		if entries[name] == nil {
			entries[name] = [][]byte{} // a retired list becomes empty
		}
	}
	for _, key := range slices.Sorted(maps.Keys(confirmed)) {
		confirmed[key].confirm(s)
	}
	for name, hashes := range entries {
		if !slices.Equal(before[name], expressions[name]) { // no new version without a change
			s.Publish(name, hashes)
		}
	}
	return nil
}

// confirm makes searches confirm an expression with the threat type of its list.
func (l listed) confirm(s *Server) {
	if l.list == extendedList {
		s.AddExtendedThreat(l.expression)
		return
	}
	s.AddThreat(l.expression, threatOf(l.list))
}

// readListed reads all lines of the file.
func readListed(r io.Reader) ([]listed, error) {
	var all []listed
	scanner := bufio.NewScanner(r)
	for n := 1; scanner.Scan(); n++ {
		text, _, _ := strings.Cut(scanner.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		l, err := parseListed(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, l)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("reading the lists: %w", err)
	}
	return all, nil
}

func parseListed(fields []string) (listed, error) {
	if len(fields) < 2 || len(fields) > 3 {
		return listed{}, errors.New("LIST EXPRESSION [unconfirmed] expected, for example se-4b evil.example.com/")
	}
	if listWidth(fields[0]) == 0 {
		return listed{}, fmt.Errorf("list name ending in -4b, -8b, -16b or -32b expected, not %q", fields[0])
	}
	if len(fields) == 3 && fields[2] != "unconfirmed" {
		return listed{}, fmt.Errorf("unconfirmed or nothing expected after the expression, not %q", fields[2])
	}
	l := listed{list: fields[0], expression: fields[1], confirmed: len(fields) == 2 && !isLikelySafe(fields[0])}
	if !strings.Contains(l.expression, "/") {
		l.expression += "/"
	}
	return l, nil
}

// Small starts a server until the test ends, and returns it and its URL. Its lists are se-4b, with
// evil.example/ and harmless.example/, which is no threat, mw-4b, with mal.example/, and uws-4b.
// The minimum wait of each is an hour.
func Small(t testing.TB) (s *Server, endpoint string) {
	t.Helper()
	s = New(t)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		s.SetMinimumWait(list, time.Hour)
		s.Publish(list, nil)
	}
	load := "se-4b evil.example/\nmw-4b mal.example/\nse-4b harmless.example/ unconfirmed\n"
	if err := Load(s, strings.NewReader(load)); err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	return s, listening.URL
}

// ThreatDetail is one threat type with its attributes, as hashes.search tells it.
type ThreatDetail = sbv5.FullHash_FullHashDetail

// AddThreat makes hashes.search confirm an expression such as "evil.example.com/",
// by way of every service; only v5 knows attributes. Further calls for the same expression add further details.
func (s *Server) AddThreat(expression string, threat sbv5.ThreatType, attributes ...sbv5.ThreatAttribute) {
	hash := sha256.Sum256([]byte(expression))
	s.AddFullHash(hash[:], &ThreatDetail{ThreatType: threat, Attributes: attributes})
}

// RemoveThreat takes back all that AddThreat and AddExtendedThreat told about an expression.
func (s *Server) RemoveThreat(expression string) {
	hash := sha256.Sum256([]byte(expression))
	s.locked(func() {
		delete(s.threats, string(hash[:]))
		delete(s.extended, string(hash[:]))
	})
}

// AddFullHash adds a raw entry, which is answered to every prefix it begins with.
// The hash need not have 32 bytes, so that malformed answers can be made.
func (s *Server) AddFullHash(hash []byte, details ...*ThreatDetail) {
	s.locked(func() {
		known := s.threats[string(hash)]
		if known == nil {
			known = &sbv5.FullHash{FullHash: bytes.Clone(hash)}
			s.threats[string(hash)] = known
		}
		known.FullHashDetails = append(known.FullHashDetails, details...)
	})
}

// SetCacheDuration sets the cache_duration of later answers of searches, or of each match
// in them, 300 seconds at the start; in Web Risk expire_time is this much later than the
// answer. A negative one leaves the field out.
func (s *Server) SetCacheDuration(d time.Duration) { s.locked(func() { s.cacheFor = d }) }

// search returns the answer of hashes.search for some prefixes, ordered by hash.
func (s *Server) search(prefixes [][]byte) *sbv5.SearchHashesResponse {
	m := &sbv5.SearchHashesResponse{}
	var found []string
	for hash := range s.threats {
		if slices.ContainsFunc(prefixes, func(prefix []byte) bool { return matches([]byte(hash), prefix) }) {
			found = append(found, hash)
		}
	}
	slices.Sort(found) // after the search: a flood makes thousands of them a second
	for _, hash := range found {
		m.FullHashes = append(m.FullHashes, s.threats[hash])
	}
	if s.cacheFor >= 0 {
		m.CacheDuration = durationpb.New(s.cacheFor)
	}
	return m
}

// matches reports whether hash, which may be malformed and shorter than prefix,
// belongs to prefix.
func matches(hash, prefix []byte) bool {
	return bytes.HasPrefix(hash, prefix) || bytes.HasPrefix(prefix, hash)
}
