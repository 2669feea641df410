package protocoltest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
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
