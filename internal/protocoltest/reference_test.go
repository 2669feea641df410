package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// recorder collects violations instead of failing the test.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.texts
	r.texts = nil
	return taken
}

// polite returns a request that breaks no rule of form.
func polite(t testing.TB, path string, values url.Values) *http.Request {
	t.Helper()
	query := url.Values{"alt": {"proto"}}
	maps.Copy(query, values)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://sb.test"+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "reference/1")
	return r
}

// maxRead is what the reference client reads of a body.
const maxRead = 1 << 20

// read sends a request and parses the answer into m, strictly.
func read(client http.RoundTripper, r *http.Request, m proto.Message) error {
	resp, err := client.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "application/x-protobuf" {
		return fmt.Errorf("content type %q", media)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	if err != nil {
		return err
	}
	if len(b) == maxRead {
		return errors.New("answer too large")
	}
	return proto.Unmarshal(b, m)
}

// searchWith sends a request of hashes.search; a malformed answer is an error.
func searchWith(client http.RoundTripper, r *http.Request) error {
	var m sbv5.SearchHashesResponse
	if err := read(client, r, &m); err != nil {
		return err
	}
	for _, h := range m.FullHashes {
		if len(h.FullHash) != sha256.Size {
			return fmt.Errorf("full hash of %d bytes", len(h.FullHash))
		}
	}
	return nil
}

// copyOf is a reference client's copy of a list.
type copyOf struct {
	version []byte
	entries []string
}

// fetch fetches lists in one request and applies the answer; the errors by list
// are about contents, err is about the request.
func fetch(t testing.TB, s http.RoundTripper, copies map[string]*copyOf, values url.Values, names ...string) (bad map[string]error, err error) {
	t.Helper()
	query := url.Values{"names": names}
	maps.Copy(query, values)
	for _, name := range names {
		if c := copies[name]; c != nil && c.version != nil {
			query.Add("version", base64URL(c.version))
		}
	}
	var m sbv5.BatchGetHashListsResponse
	if err := read(s, polite(t, "/v5/hashLists:batchGet", query), &m); err != nil {
		return nil, err
	}
	if len(m.HashLists) != len(names) {
		return nil, fmt.Errorf("%d lists, want %d", len(m.HashLists), len(names))
	}
	for i, name := range names {
		if m.HashLists[i].Name != name {
			return nil, fmt.Errorf("list %q, want %q", m.HashLists[i].Name, name)
		}
	}
	bad = map[string]error{}
	for i, name := range names {
		next, err := apply(copies[name], m.HashLists[i], listWidth(name))
		copies[name] = next
		if err != nil {
			bad[name] = err
		}
	}
	return bad, nil
}

// apply is the procedure of the page "Local Database", as plain as possible. With
// an error it returns nil, so that the next fetch is a full one.
func apply(old *copyOf, m *sbv5.HashList, width int) (*copyOf, error) {
	if len(m.Version) == 0 || m.MinimumWaitDuration.AsDuration() < 0 {
		return nil, errors.New("no version or a negative wait")
	}
	var base []string
	if m.PartialUpdate {
		if old == nil || old.version == nil {
			return nil, errors.New("partial update without base")
		}
		base = slices.Clone(old.entries)
	}
	removals, err := decodeRice(32, m.CompressedRemovals != nil, uint64ToBig(uint64(m.CompressedRemovals.GetFirstValue())),
		m.CompressedRemovals.GetRiceParameter(), m.CompressedRemovals.GetEntriesCount(), m.CompressedRemovals.GetEncodedData())
	if err != nil {
		return nil, fmt.Errorf("removals: %w", err)
	}
	additions, err := decodeAdditions(m, width)
	if err != nil {
		return nil, fmt.Errorf("additions: %w", err)
	}
	if m.PartialUpdate && len(removals)+len(additions) == 0 && len(m.Sha256Checksum) == 0 {
		return &copyOf{version: m.Version, entries: old.entries}, nil
	}
	for i, index := range slices.Backward(removals) {
		if !index.IsInt64() || index.Int64() >= int64(len(base)) || i > 0 && removals[i-1].Cmp(index) >= 0 {
			return nil, errors.New("removal out of range or order")
		}
		base = slices.Delete(base, int(index.Int64()), int(index.Int64())+1)
	}
	for _, a := range additions {
		base = append(base, string(a.FillBytes(make([]byte, width))))
	}
	slices.Sort(base)
	for i := 1; i < len(base); i++ {
		if base[i-1] == base[i] {
			return nil, errors.New("duplicate entry")
		}
	}
	if sum := sha256.Sum256([]byte(strings.Join(base, ""))); !bytes.Equal(sum[:], m.Sha256Checksum) {
		return nil, errors.New("wrong checksum")
	}
	return &copyOf{version: m.Version, entries: base}, nil
}

// wantOne checks that exactly one violation was reported and that it names a rule.
func wantOne(t *testing.T, got []string, rule string) {
	t.Helper()
	if len(got) != 1 || !strings.Contains(got[0], rule) {
		t.Errorf("violations %q, want one that names %q", got, rule)
	}
}

func wantNone(t *testing.T, got []string) {
	t.Helper()
	if len(got) > 0 {
		t.Errorf("violations %q, want none", got)
	}
}
