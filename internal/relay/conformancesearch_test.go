package relay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const (
	sourceSearch = "REST reference, hashes.search [G]"
	sourceMode   = "Local List Mode, cache [G]"
	sourceThreat = "schema, FullHashDetail [G]"
)

// searchRows are about hashes.search.
var searchRows = []row{
	{"full hashes of 32 bytes that begin with the prefixes", sourceSearch, func(s *subject) error {
		return s.finds([]string{"evil.example/", "both.example/", "unconfirmed.example/"}, "evil.example/ SOCIAL_ENGINEERING", "both.example/ SOCIAL_ENGINEERING MALWARE+FRAME_ONLY")
	}},
	{"a listed prefix without threats: an empty answer", sourceSearch, func(s *subject) error {
		return s.finds([]string{"unconfirmed.example/"})
	}},
	{"a prefix in no list: an empty answer", sourceSearch, func(s *subject) error {
		return s.finds([]string{"clean.example/"})
	}},
	{"prefixes with and without threats together", sourceSearch, func(s *subject) error {
		return s.finds([]string{"clean.example/", "evil.example/"}, "evil.example/ SOCIAL_ENGINEERING")
	}},
	{"a canary is marked, or not there", sourceThreat, func(s *subject) error {
		got, err := s.searchFor(prefixOf("canary.example/", 4))
		for _, f := range got.GetFullHashes() {
			for _, d := range f.FullHashDetails {
				if !slices.Contains(d.Attributes, sbv5.ThreatAttribute_CANARY) {
					return fmt.Errorf("%v", d)
				}
			}
		}
		return err
	}},
	{"a cache duration, also of an empty answer", sourceMode, func(s *subject) error {
		for _, e := range []string{"evil.example/", "unconfirmed.example/", "clean.example/"} {
			got, err := s.searchFor(prefixOf(e, 4))
			if d := got.GetCacheDuration(); err == nil && (d.CheckValid() != nil || d.AsDuration() <= 0) {
				err = fmt.Errorf("%s: cache duration %v", e, d)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"1000 prefixes are answered", sourceSearch, func(s *subject) error {
		_, err := s.searchFor(manyPrefixes(1000)...)
		return err
	}},
	{"1001 prefixes: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", prefixPairs(manyPrefixes(1001)...)...)},
	{"no prefix: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search")},
	{"a prefix of 3 bytes: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", prefixPairs([]byte("abc"))...)},
	{"a prefix of 5 bytes: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", prefixPairs([]byte("abcde"))...)},
	{"a full hash: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", prefixPairs(prefixOf("evil.example/", 32))...)},
	{"a good prefix and a short one: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", prefixPairs([]byte("abcd"), []byte("abc"))...)},
	{"a prefix that is not base64: 400", sourceSearch, refusal([]int{400}, "/v5/hashes:search", "hashPrefixes", "!")},
	{"either alphabet of base64, padded or not", "JSON mapping of protobuf [G]", eitherBase64},
	{"gzip only on request, and it changes no content", "RFC 9110 section 12.5.3", gzipChangesNothing},
}

// prefixPairs returns prefixes as pairs of a query.
func prefixPairs(prefixes ...[]byte) (pairs []string) {
	for _, p := range prefixes {
		pairs = append(pairs, "hashPrefixes", param64(p))
	}
	return pairs
}

// manyPrefixes returns n prefixes, which are in no list.
func manyPrefixes(n int) (all [][]byte) {
	for _, e := range entriesFrom(4, 10_000, 10_000+n) {
		all = append(all, []byte(e))
	}
	return all
}

// searchFor searches for prefixes.
func (s *subject) searchFor(prefixes ...[]byte) (*sbv5.SearchHashesResponse, error) {
	got := new(sbv5.SearchHashesResponse)
	return got, s.read(got, "/v5/hashes:search", prefixPairs(prefixes...)...)
}

// finds searches for the prefixes of expressions. It wants just the threats of some of them:
// each is an expression, its threats and their attributes.
func (s *subject) finds(expressions []string, want ...string) error {
	var prefixes [][]byte
	of := make(map[string]string)
	for _, e := range expressions {
		prefixes = append(prefixes, prefixOf(e, 4))
		of[string(prefixOf(e, 32))] = e
	}
	m, err := s.searchFor(prefixes...)
	if err != nil {
		return err
	}
	var got []string
	for _, f := range m.FullHashes {
		text := of[string(f.FullHash)]
		for _, d := range f.FullHashDetails {
			text += " " + d.ThreatType.String()
			for _, a := range d.Attributes {
				text += "+" + a.String()
			}
		}
		got = append(got, text)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("full hashes %q, want %q", got, want)
	}
	return nil
}

// eitherBase64 searches for prefixes whose base64 differs in the two alphabets.
func eitherBase64(s *subject) error {
	raw := []byte{0xfb, 0xff, 0xfe, 0x00}
	for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		text := coding.EncodeToString(raw)
		if err := s.read(new(sbv5.SearchHashesResponse), "/v5/hashes:search", "hashPrefixes", text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// gzipChangesNothing asks with and without gzip.
func gzipChangesNothing(s *subject) error {
	pairs := []string{"alt", "proto"}
	for i := range manyThreats {
		pairs = append(pairs, prefixPairs(prefixOf(fmt.Sprintf("m%d.example/", i), 4))...)
	}
	plain, err := s.get("/v5/hashes:search", pairs...)
	if err != nil || plain.header.Get("Content-Encoding") != "" {
		return fmt.Errorf("coding %q without a request for it: %w", plain.header.Get("Content-Encoding"), err)
	}
	header := http.Header{"X-Goog-Api-Key": {conformanceKey}, "Accept-Encoding": {"gzip"}}
	zipped, err := s.send(http.MethodGet, "/v5/hashes:search", header, pairs...)
	if err != nil {
		return err
	}
	if strings.EqualFold(zipped.header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(bytes.NewReader(zipped.body))
		if err != nil {
			return err
		}
		if zipped.body, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	var a, b sbv5.SearchHashesResponse
	if err := errors.Join(plain.decode(&a), zipped.decode(&b)); err != nil {
		return err
	}
	a.CacheDuration, b.CacheDuration = nil, nil // it may differ by the seconds between
	if len(a.FullHashes) != manyThreats || !proto.Equal(&a, &b) {
		return fmt.Errorf("%d and %d full hashes", len(a.FullHashes), len(b.FullHashes))
	}
	return nil
}

// page is an answer as it came.
type page struct {
	status int
	header http.Header
	body   []byte
}

// get asks for a path with pairs of names and values as its query. The key is in the header
// unless without says otherwise.
func (s *subject) get(path string, pairs ...string) (page, error) {
	return s.send(http.MethodGet, path, http.Header{"X-Goog-Api-Key": {conformanceKey}, "User-Agent": {"conformance/1"}}, pairs...)
}

func (s *subject) send(method, path string, header http.Header, pairs ...string) (page, error) {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	r, err := http.NewRequest(method, s.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return page{}, err
	}
	r.Header = header
	answer, err := s.client.Do(r)
	if err != nil {
		return page{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return page{answer.StatusCode, answer.Header, body}, err
}

// read asks with alt=proto and decodes the answer, which must be good.
func (s *subject) read(m proto.Message, path string, pairs ...string) error {
	p, err := s.get(path, append([]string{"alt", "proto"}, pairs...)...)
	if err != nil {
		return err
	}
	return p.decode(m)
}

func (p page) decode(m proto.Message) error {
	if p.status != http.StatusOK || p.header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("status %d, content type %q: %.200s", p.status, p.header.Get("Content-Type"), p.body)
	}
	return proto.Unmarshal(p.body, m)
}

// statusOf are the words for statuses in Google's error object (google.rpc.Code).
var statusOf = map[int]string{400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}

// refused reports an error unless the answer is Google's error object with one of the statuses.
func (p page) refused(statuses ...int) error {
	var body struct {
		Error struct {
			Code            int
			Message, Status string
		}
	}
	if !slices.Contains(statuses, p.status) || !strings.HasPrefix(p.header.Get("Content-Type"), "application/json") {
		return fmt.Errorf("status %d, content type %q, want status %v", p.status, p.header.Get("Content-Type"), statuses)
	}
	if err := json.Unmarshal(p.body, &body); err != nil {
		return err
	}
	if e := body.Error; e.Code != p.status || e.Message == "" || statusOf[p.status] != "" && e.Status != statusOf[p.status] {
		return fmt.Errorf("status %d, error object %+v, want %s", p.status, e, statusOf[p.status])
	}
	return nil
}

// apply lets our own client, which the judging server judges elsewhere, apply an update of a list to
// the entries that it has.
func apply(base []string, l *sbv5.HashList) (list updater.List, err error) {
	raw, err := proto.Marshal(l)
	if err != nil {
		return list, err
	}
	c, err := protocol.NewV5(protocol.Config{UserAgent: "conformance/1", Transport: &wire{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(raw)
	})}})
	if err != nil {
		return list, err
	}
	b := prefixset.NewBuilder(len(base))
	for _, e := range base {
		err = cmp.Or(err, b.Add([]byte(e), len(e)))
	}
	old := updater.List{Name: l.Name, Version: []byte{1}, Set: b.Set()}
	_, fetchErr := c.Fetch(context.Background(), []updater.Want{{List: l.Name, Version: old.Version}}, func(_ int, u *updater.Update) {
		var applyErr error
		list, _, applyErr = updater.Apply(old, u, updater.DefaultMaxEntries)
		err = cmp.Or(err, applyErr)
	})
	return list, cmp.Or(err, fetchErr)
}

// changes is how many entries of four bytes an update adds and removes.
func changes(l *sbv5.HashList) (n int32) {
	for _, coded := range []*sbv5.RiceDeltaEncoded32Bit{l.GetAdditionsFourBytes(), l.CompressedRemovals} {
		if coded != nil {
			n += coded.EntriesCount + 1
		}
	}
	return n
}
