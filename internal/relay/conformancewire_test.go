package relay

import (
	"cmp"
	"context"
	"encoding/json"
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
