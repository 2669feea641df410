package relay

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

const (
	sourceGet     = "REST reference, hashList.get [G]"
	sourceBatch   = "REST reference, hashLists.batchGet [G]"
	sourceAll     = "REST reference, hashLists.list [G]"
	sourceSearch  = "REST reference, hashes.search [G]"
	sourceFrame   = "REST reference, methods [G]"
	sourceLocal   = "Local Database [G]"
	sourceMode    = "Local List Mode, cache [G]"
	sourceList    = "schema, HashList [G]"
	sourceRice    = "schema, RiceDeltaEncoded [G]"
	sourceSizes   = "schema, SizeConstraints [G]"
	sourceThreat  = "schema, FullHashDetail [G]"
	sourceSystem  = "Google Cloud, System parameters [G]"
	sourceErrors  = "Google Cloud, Errors [G]"
	sourceMessage = "Chromium and Firefox, $req [g][F]"
)

// changing are the lists that differ before and after.
var changing = []string{"se-4b", "mw-8b", "uws-16b", "pha-32b"}

// listRows are about hashList.get.
var listRows = []row{
	{"no version: a full update, with a version", sourceGet, func(s *subject) {
		l := s.list("se-4b", nil)
		s.want(l.Name == "se-4b" && !l.PartialUpdate && len(l.Version) > 0, "name %q, partial %t, version %x", l.Name, l.PartialUpdate, l.Version)
		s.leads(nil, l, contentsAfter["se-4b"])
	}},
	{"an unknown version: a full update", sourceLocal, fullUpdate(func(*subject) []byte { return []byte("of another server") })},
	{"a version of another list: a full update", sourceLocal, fullUpdate(func(s *subject) []byte { return s.before["mw-8b"].Version })},
	{"the version in force: nothing changed, no checksum", sourceLocal, func(s *subject) {
		l := s.list("se-4b", s.list("se-4b", nil).Version)
		s.want(l.PartialUpdate && l.CompressedAdditions == nil && l.CompressedRemovals == nil && len(l.Sha256Checksum) == 0 && len(l.Version) > 0,
			"partial %t, checksum %x, version %x", l.PartialUpdate, l.Sha256Checksum, l.Version)
	}},
	{"an older version: a partial update to the list in force", sourceLocal, func(s *subject) {
		for _, name := range changing {
			l := s.list(name, s.before[name].Version)
			s.want(l.PartialUpdate && l.CompressedRemovals != nil && l.CompressedAdditions != nil, "list %s: partial %t", name, l.PartialUpdate)
			s.leads(contentsBefore[name], l, contentsAfter[name])
		}
	}},
	{"entries of 4, 8, 16, 32 bytes: a field for each", sourceList, func(s *subject) {
		for _, name := range changing {
			s.leads(nil, s.list(name, nil), contentsAfter[name])
		}
	}},
	{"one entry, all zero: a present field, no difference", sourceRice, func(s *subject) {
		l := s.list("pha-4b", nil)
		a := l.GetAdditionsFourBytes()
		s.want(a != nil && a.EntriesCount == 0 && len(a.EncodedData) == 0, "additions %v", a)
		s.leads(nil, l, contentsAfter["pha-4b"])
	}},
	{"an empty list: no additions, the checksum of nothing", sourceLocal, func(s *subject) {
		l := s.list("uws-4b", nil)
		s.want(l.CompressedAdditions == nil && !l.PartialUpdate, "%v", l)
		s.leads(nil, l, nil)
	}},
	{"maxUpdateEntries: the list, in steps of at most this number of changes or, as from a relay, at once", sourceSizes, func(s *subject) {
		s.inSteps("se-4b", nil, nil)
		s.inSteps("se-4b", s.before["se-4b"].Version, contentsBefore["se-4b"])
	}},
	{"maxDatabaseEntries: at most this number of entries", sourceSizes, func(s *subject) {
		n := s.apply(nil, s.list("se-4b", nil, "sizeConstraints.maxDatabaseEntries", "1500")).Set.Len()
		s.want(n <= 1500 && n >= 1000, "%d entries, want at most 1500 and not much less", n)
	}},
	{"a constraint of 0 is no limit", sourceSizes, func(s *subject) {
		l := s.list("se-4b", nil, "sizeConstraints.maxDatabaseEntries", "0", "sizeConstraints.maxUpdateEntries", "0")
		s.leads(nil, l, contentsAfter["se-4b"])
	}},
	{"a minimum wait, more than 0 and at most a day", sourceList, func(s *subject) {
		wait := s.list("se-4b", nil).GetMinimumWaitDuration()
		s.want(wait.CheckValid() == nil && wait.AsDuration() > 0 && wait.AsDuration() <= 24*time.Hour, "minimum wait %v", wait)
	}},
	{"an unknown list: 400 or 404", "Chromium, v5_update_protocol_manager [g][J]", absent("/v5/hashList/xy-4b")},
	{"two versions of one list: 400", sourceGet, func(s *subject) {
		refusal("more versions than lists", "/v5/hashList/se-4b", s.versions("se-4b", "se-4b")...)(s)
	}},
	{"a version that is not base64: 400", sourceGet, refusal("not base64", "/v5/hashList/se-4b", "version", "!")},
	{"maxUpdateEntries below 1024: 400", sourceSizes, refusal("1024", "/v5/hashList/se-4b", "sizeConstraints.maxUpdateEntries", "1023")},
	{"a negative maxUpdateEntries: 400", sourceSizes, refusal("negative", "/v5/hashList/se-4b", "sizeConstraints.maxUpdateEntries", "-1")},
	{"a negative maxDatabaseEntries: 400", sourceSizes, refusal("negative", "/v5/hashList/se-4b", "sizeConstraints.maxDatabaseEntries", "-1")},
}

// batchRows are about hashLists.batchGet and hashLists.list.
var batchRows = []row{
	{"lists come in the order of the names", sourceBatch, func(s *subject) {
		s.batch([]string{"uws-16b", "se-4b", "pha-4b", "mw-8b"})
		s.batch([]string{"mw-8b", "pha-4b", "se-4b", "uws-16b"})
	}},
	{"versions in any order", sourceBatch, func(s *subject) {
		names := []string{"se-4b", "mw-8b", "uws-16b"}
		for _, order := range [][]string{names, {"uws-16b", "mw-8b", "se-4b"}, {"mw-8b", "uws-16b", "se-4b"}} {
			for _, l := range s.batch(names, s.versions(order...)...) {
				s.want(l.PartialUpdate, "versions %v: list %s is whole", order, l.Name)
				s.leads(contentsBefore[l.Name], l, contentsAfter[l.Name])
			}
		}
	}},
	{"a list without a version: full, the others partial", sourceBatch, func(s *subject) {
		s.mixed(s.batch([]string{"se-4b", "mw-8b"}, s.versions("mw-8b")...))
	}},
	{"an unknown version in a batch: a full update", sourceLocal, func(s *subject) {
		s.mixed(s.batch([]string{"se-4b", "mw-8b"}, append(s.versions("mw-8b"), "version", param64([]byte("of another server")))...))
	}},
	{"one minimum wait for all lists of a batch", "client asks for all at once [J]", func(s *subject) {
		all := s.batch([]string{"se-4b", "mw-8b", "uws-4b"}, s.versions("se-4b")...)
		for _, l := range all {
			wait := l.GetMinimumWaitDuration()
			s.want(wait.AsDuration() > 0 && proto.Equal(wait, all[0].GetMinimumWaitDuration()), "list %s: minimum wait %v", l.Name, wait)
		}
	}},
	{"a name twice: 400", sourceBatch, refusal("more than once", "/v5/hashLists:batchGet", "names", "se-4b", "names", "se-4b")},
	{"no name: 400", sourceBatch, refusal("no parameter names", "/v5/hashLists:batchGet")},
	{"two versions of one list in a batch: 400", sourceBatch, func(s *subject) {
		refusal("two versions", "/v5/hashLists:batchGet", append(s.versions("se-4b", "se-4b"), "names", "se-4b", "names", "mw-4b")...)(s)
	}},
	{"an unknown list in a batch: 400 or 404 for the batch", "Chromium, v5_update_protocol_manager [g][J]",
		absent("/v5/hashLists:batchGet", "names", "se-4b", "names", "xy-4b")},
	{"the list of lists has all names and their widths", sourceAll, func(s *subject) {
		s.pages("100", "mw-4b mw-8b pha-32b pha-4b se-4b uws-16b uws-4b ")
	}},
	{"pages of at most pageSize lists, none left out", sourceAll, func(s *subject) {
		s.pages("3", "mw-4b mw-8b pha-32b |pha-4b se-4b uws-16b |uws-4b ")
	}},
	{"an unknown pageToken: 400", sourceAll, refusal("no such page", "/v5/hashLists", "pageToken", "?")},
	{"a negative pageSize: 400", sourceAll, refusal("negative", "/v5/hashLists", "pageSize", "-1")},
}

// searchRows are about hashes.search.
var searchRows = []row{
	{"full hashes of 32 bytes that begin with the prefixes", sourceSearch, func(s *subject) {
		s.finds([]string{"evil.example/", "both.example/", "unconfirmed.example/"},
			"both.example/ SOCIAL_ENGINEERING MALWARE+FRAME_ONLY", "evil.example/ SOCIAL_ENGINEERING")
	}},
	{"a listed prefix without threats: an empty answer", sourceSearch, func(s *subject) { s.finds([]string{"unconfirmed.example/"}) }},
	{"a prefix in no list: an empty answer", sourceSearch, func(s *subject) { s.finds([]string{"clean.example/"}) }},
	{"prefixes with and without threats together", sourceSearch, func(s *subject) {
		s.finds([]string{"clean.example/", "evil.example/"}, "evil.example/ SOCIAL_ENGINEERING")
	}},
	{"a canary is marked, or not there", sourceThreat, func(s *subject) {
		for _, f := range s.searchFor(prefixOf("canary.example/", 4)).FullHashes {
			for _, d := range f.FullHashDetails {
				s.want(slices.Contains(d.Attributes, sbv5.ThreatAttribute_CANARY), "%v", d)
			}
		}
	}},
	{"a cache duration, also of an empty answer", sourceMode, func(s *subject) {
		for _, e := range []string{"evil.example/", "unconfirmed.example/", "clean.example/"} {
			d := s.searchFor(prefixOf(e, 4)).GetCacheDuration()
			s.want(d.CheckValid() == nil && d.AsDuration() > 0, "%s: cache duration %v", e, d)
		}
	}},
	{"1000 prefixes are answered", sourceSearch, func(s *subject) { s.searchFor(manyPrefixes(1000)...) }},
	{"1001 prefixes: 400", sourceSearch, refusal("1001 times", "/v5/hashes:search", prefixPairs(manyPrefixes(1001)...)...)},
	{"no prefix: 400", sourceSearch, refusal("no parameter hashPrefixes", "/v5/hashes:search")},
	{"a prefix of 3 bytes: 400", sourceSearch, refusal("3 bytes", "/v5/hashes:search", prefixPairs([]byte("abc"))...)},
	{"a prefix of 5 bytes: 400", sourceSearch, refusal("5 bytes", "/v5/hashes:search", prefixPairs([]byte("abcde"))...)},
	{"a full hash: 400", sourceSearch, refusal("32 bytes", "/v5/hashes:search", prefixPairs(prefixOf("evil.example/", 32))...)},
	{"a good prefix and a short one: 400", sourceSearch, refusal("3 bytes", "/v5/hashes:search", prefixPairs([]byte("abcd"), []byte("abc"))...)},
	{"a prefix that is not base64: 400", sourceSearch, refusal("not base64", "/v5/hashes:search", "hashPrefixes", "!")},
	{"either alphabet of base64, padded or not", "JSON mapping of protobuf [G]", func(s *subject) {
		for _, coding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			s.read(new(sbv5.SearchHashesResponse), "/v5/hashes:search", "hashPrefixes", coding.EncodeToString([]byte{0xfb, 0xff, 0xfe, 0x00}))
		}
	}},
}

// frameRows are about requests and answers of all methods.
var frameRows = []row{
	{"alt=proto: application/x-protobuf", sourceSystem, func(s *subject) { s.read(new(sbv5.ListHashListsResponse), "/v5/hashLists") }},
	{"no alt: protobuf", "observed by six clients [O]", func(s *subject) {
		s.decode(s.get("/v5/hashLists"), new(sbv5.ListHashListsResponse))
	}},
	{"alt=json: JSON, or a clear 400 as from a relay", sourceSystem, func(s *subject) {
		got := s.get("/v5/hashLists", "alt", "json")
		if got.Code != http.StatusOK {
			s.refused(got, 400)
			return
		}
		err := protojson.Unmarshal(got.Body.Bytes(), new(sbv5.ListHashListsResponse))
		s.want(err == nil && strings.HasPrefix(got.Header().Get("Content-Type"), "application/json"), "%v", err)
	}},
	{"$req of batchGet", sourceMessage, func(s *subject) {
		var got sbv5.BatchGetHashListsResponse
		s.readMessage(&got, "/v5/hashLists:batchGet", &sbv5.BatchGetHashListsRequest{
			Names: []string{"se-4b", "mw-8b"}, Version: [][]byte{s.before["mw-8b"].Version},
			SizeConstraints: &sbv5.SizeConstraints{MaxDatabaseEntries: 1024}})
		s.mixed(got.HashLists)
		s.want(changes(got.HashLists[0]) == 1024, "not as many entries as asked for")
	}},
	{"$req of search", sourceMessage, func(s *subject) {
		var got sbv5.SearchHashesResponse
		s.readMessage(&got, "/v5/hashes:search", &sbv5.SearchHashesRequest{HashPrefixes: [][]byte{prefixOf("evil.example/", 4)}})
		s.want(len(got.FullHashes) == 1, "%d full hashes", len(got.FullHashes))
	}},
	{"$req that is not base64: 400", sourceMessage, refusal("$req is not base64", "/v5/hashes:search", "$req", "!")},
	{"the key in the header", sourceSystem, keyed(true, http.Header{"X-Goog-Api-Key": {conformanceKey}})},
	{"the key in the parameter", sourceSystem, keyed(true, http.Header{}, "key", conformanceKey)},
	{"no key: 400 or 403", sourceErrors, keyed(false, http.Header{})},
	{"another key: 400 or 403", sourceErrors, keyed(false, http.Header{"X-Goog-Api-Key": {"OTHER"}})},
	{"cookies are ignored", "Privacy [G]", keyed(true, http.Header{"X-Goog-Api-Key": {conformanceKey}, "Cookie": {"a=b"}})},
	{"another path: 404", sourceFrame, func(s *subject) { s.refused(s.get("/v5/nothing", "alt", "proto"), 404) }},
	{"POST: an error", sourceFrame, func(s *subject) {
		s.refused(s.send(http.MethodPost, "/v5/hashLists", http.Header{"X-Goog-Api-Key": {conformanceKey}}, "alt", "proto"), 404, 405)
	}},
}
