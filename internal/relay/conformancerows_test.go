package relay

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

const (
	sourceBatch   = "REST reference, hashLists.batchGet [G]"
	sourceAll     = "REST reference, hashLists.list [G]"
	sourceFrame   = "REST reference, methods [G]"
	sourceSystem  = "Google Cloud, System parameters [G]"
	sourceErrors  = "Google Cloud, Errors [G]"
	sourceMessage = "Chromium and Firefox, $req [g][F]"
)

// param64 encodes bytes for a parameter.
func param64(raw []byte) string { return base64.URLEncoding.EncodeToString(raw) }

// batchRows are about hashLists.batchGet and hashLists.list.
var batchRows = []row{
	{"lists come in the order of the names", sourceBatch, func(s *subject) error {
		_, err := s.batch([]string{"uws-16b", "se-4b", "pha-4b", "mw-8b"})
		return errors.Join(err, second(s.batch([]string{"mw-8b", "pha-4b", "se-4b", "uws-16b"})))
	}},
	{"versions in any order", sourceBatch, func(s *subject) error {
		names := []string{"se-4b", "mw-8b", "uws-16b"}
		for _, order := range [][]string{{"se-4b", "mw-8b", "uws-16b"}, {"uws-16b", "mw-8b", "se-4b"}, {"mw-8b", "uws-16b", "se-4b"}} {
			all, err := s.batch(names, s.versions(order...)...)
			if err != nil {
				return err
			}
			for _, l := range all {
				if err := leads(contentsBefore[l.Name], l, contentsAfter[l.Name]); err != nil || !l.PartialUpdate {
					return fmt.Errorf("versions %v: list %s: partial %t, %w", order, l.Name, l.PartialUpdate, err)
				}
			}
		}
		return nil
	}},
	{"a list without a version: full, the others partial", sourceBatch, func(s *subject) error {
		all, err := s.batch([]string{"se-4b", "mw-8b"}, s.versions("mw-8b")...)
		if err == nil && (all[0].PartialUpdate || !all[1].PartialUpdate) {
			err = fmt.Errorf("partial: %t, %t", all[0].PartialUpdate, all[1].PartialUpdate)
		}
		return err
	}},
	{"an unknown version in a batch: a full update", sourceLocal, func(s *subject) error {
		all, err := s.batch([]string{"se-4b", "mw-8b"}, append(s.versions("mw-8b"), "version", param64([]byte("of another server")))...)
		if err == nil && (all[0].PartialUpdate || !all[1].PartialUpdate) {
			err = fmt.Errorf("partial: %t, %t", all[0].PartialUpdate, all[1].PartialUpdate)
		}
		return err
	}},
	{"one minimum wait for all lists of a batch", "client asks for all at once [J]", func(s *subject) error {
		all, err := s.batch([]string{"se-4b", "mw-8b", "uws-4b"}, s.versions("se-4b")...)
		for _, l := range all {
			if wait := l.GetMinimumWaitDuration(); wait.AsDuration() <= 0 || !proto.Equal(wait, all[0].GetMinimumWaitDuration()) {
				return fmt.Errorf("list %s: minimum wait %v", l.Name, wait)
			}
		}
		return err
	}},
	{"a name twice: 400", sourceBatch, refusal([]int{400}, "/v5/hashLists:batchGet", "names", "se-4b", "names", "se-4b")},
	{"no name: 400", sourceBatch, refusal([]int{400}, "/v5/hashLists:batchGet")},
	{"two versions of one list in a batch: 400", sourceBatch, func(s *subject) error {
		pairs := append([]string{"names", "se-4b", "names", "mw-8b"}, append(s.versions("se-4b"), s.versions("se-4b")...)...)
		return refusal([]int{400}, "/v5/hashLists:batchGet", pairs...)(s)
	}},
	{"an unknown list in a batch: 400 or 404 for the batch", "Chromium, v5_update_protocol_manager [g][J]",
		refusal([]int{400, 404}, "/v5/hashLists:batchGet", "names", "se-4b", "names", "xy-4b")},
	{"the list of lists has all names and their widths", sourceAll, func(s *subject) error {
		names, err := s.names("100")
		if err == nil && names != "mw-4b mw-8b pha-32b pha-4b se-4b uws-16b uws-4b " {
			err = fmt.Errorf("names %s", names)
		}
		return err
	}},
	{"pages of at most pageSize lists, none left out", sourceAll, func(s *subject) error {
		names, err := s.names("3")
		if err == nil && names != "mw-4b mw-8b pha-32b |pha-4b se-4b uws-16b |uws-4b " {
			err = fmt.Errorf("pages %s", names)
		}
		return err
	}},
	{"an unknown pageToken: 400", sourceAll, refusal([]int{400}, "/v5/hashLists", "pageToken", "?")},
	{"a negative pageSize: 400", sourceAll, refusal([]int{400}, "/v5/hashLists", "pageSize", "-1")},
}

// frameRows are about requests and answers of all methods.
var frameRows = []row{
	{"alt=proto: application/x-protobuf", sourceSystem, func(s *subject) error {
		return s.read(new(sbv5.ListHashListsResponse), "/v5/hashLists")
	}},
	{"no alt: protobuf", "observed by six clients [O]", func(s *subject) error {
		p, err := s.get("/v5/hashLists")
		return errors.Join(err, p.decode(new(sbv5.ListHashListsResponse)))
	}},
	{"alt=json: JSON, or a clear 400 as from a relay", sourceSystem, func(s *subject) error {
		p, err := s.get("/v5/hashLists", "alt", "json")
		if err == nil && p.status == http.StatusOK && strings.HasPrefix(p.header.Get("Content-Type"), "application/json") {
			return protojson.Unmarshal(p.body, new(sbv5.ListHashListsResponse))
		}
		return errors.Join(err, p.refused(400))
	}},
	{"$req of batchGet", sourceMessage, func(s *subject) error {
		m := &sbv5.BatchGetHashListsRequest{Names: []string{"se-4b", "mw-8b"}, Version: [][]byte{s.before["mw-8b"].Version},
			SizeConstraints: &sbv5.SizeConstraints{MaxDatabaseEntries: 1024}}
		var got sbv5.BatchGetHashListsResponse
		err := s.readMessage(&got, "/v5/hashLists:batchGet", m)
		if all := got.HashLists; err == nil && (len(all) != 2 || all[0].PartialUpdate || !all[1].PartialUpdate || changes(all[0]) != 1024) {
			err = fmt.Errorf("%d lists", len(all))
		}
		return err
	}},
	{"$req of search", sourceMessage, func(s *subject) error {
		var got sbv5.SearchHashesResponse
		err := s.readMessage(&got, "/v5/hashes:search", &sbv5.SearchHashesRequest{HashPrefixes: [][]byte{prefixOf("evil.example/", 4)}})
		if err == nil && len(got.FullHashes) != 1 {
			err = fmt.Errorf("%d full hashes", len(got.FullHashes))
		}
		return err
	}},
	{"$req that is not base64: 400", sourceMessage, refusal([]int{400}, "/v5/hashes:search", "$req", "!")},
	{"the key in the header", sourceSystem, keyed(http.Header{"X-Goog-Api-Key": {conformanceKey}}, 200)},
	{"the key in the parameter", sourceSystem, keyed(http.Header{}, 200, "key", conformanceKey)},
	{"no key: 400 or 403", sourceErrors, keyed(http.Header{}, 0)},
	{"another key: 400 or 403", sourceErrors, keyed(http.Header{"X-Goog-Api-Key": {"OTHER"}}, 0)},
	{"cookies are ignored", "Privacy [G]", keyed(http.Header{"X-Goog-Api-Key": {conformanceKey}, "Cookie": {"a=b"}}, 200)},
	{"another path: 404", sourceFrame, refusal([]int{404}, "/v5/nothing")},
	{"POST: an error", sourceFrame, func(s *subject) error {
		p, err := s.send(http.MethodPost, "/v5/hashLists", http.Header{"X-Goog-Api-Key": {conformanceKey}}, "alt", "proto")
		return errors.Join(err, p.refused(404, 405))
	}},
}

// versions returns the versions of the lists before the change, as pairs.
func (s *subject) versions(names ...string) (pairs []string) {
	for _, name := range names {
		pairs = append(pairs, "version", param64(s.before[name].Version))
	}
	return pairs
}

// batch asks for lists. They must come in the order of the names.
func (s *subject) batch(names []string, pairs ...string) ([]*sbv5.HashList, error) {
	for _, name := range names {
		pairs = append(pairs, "names", name)
	}
	var got sbv5.BatchGetHashListsResponse
	if err := s.read(&got, "/v5/hashLists:batchGet", pairs...); err != nil {
		return nil, err
	}
	var came []string
	for _, l := range got.HashLists {
		came = append(came, l.Name)
	}
	if !slices.Equal(came, names) {
		return nil, fmt.Errorf("lists %v, want %v", came, names)
	}
	return got.HashLists, nil
}

func second(_ []*sbv5.HashList, err error) error { return err }

// names returns the names of all lists, with a bar between pages. Each list must say how long
// its entries are.
func (s *subject) names(pageSize string) (all string, err error) {
	lengths := map[sbv5.HashListMetadata_HashLength]string{2: "-4b", 3: "-8b", 4: "-16b", 5: "-32b"}
	token := ""
	for range 10 {
		var page sbv5.ListHashListsResponse
		if err := s.read(&page, "/v5/hashLists", "pageSize", pageSize, "pageToken", token); err != nil {
			return all, err
		}
		for _, l := range page.HashLists {
			if m := l.GetMetadata(); len(m.GetThreatTypes()) != 1 || !bytes.HasSuffix([]byte(l.Name), []byte(lengths[m.GetHashLength()])) || len(l.Version) > 0 {
				return all, fmt.Errorf("list %s: %v", l.Name, m)
			}
			all += l.Name + " "
		}
		if token = page.NextPageToken; token == "" {
			return all, nil
		}
		all += "|"
	}
	return all, errors.New("the pages do not end")
}

// readMessage sends a message as browsers do.
func (s *subject) readMessage(got proto.Message, path string, m proto.Message) error {
	raw, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return s.read(got, path, "$req", param64(raw), "$ct", "application/x-protobuf")
}

// keyed asks for the list of lists with a header and wants a status; 0: an error of the key.
func keyed(header http.Header, status int, pairs ...string) func(s *subject) error {
	return func(s *subject) error {
		p, err := s.send(http.MethodGet, "/v5/hashLists", header.Clone(), append([]string{"alt", "proto"}, pairs...)...)
		switch {
		case err != nil:
			return err
		case status == http.StatusOK:
			return p.decode(new(sbv5.ListHashListsResponse))
		}
		return p.refused(400, 403)
	}
}
