package protocol

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Messages as the schema of v5 writes them. The hashes and the coded data are
// those of the pages "URLs and Hashing" and "Local Database".
const (
	wireSearchRequest = "0a041d32c508"
	wireNothingFound  = "120308ac02"
	wireFound         = "0a260a201d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c12020802120308ac02"
	wireFull          = "0a0573652d346212020102221508888acbe901101e180222097400d2971bed497400320308880e3a20d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf"
	wirePartial       = "0a0573652d3462120201031801220608e2bce0c4082a020801320308ac023a204331164ec13c31b2764ff32a04eab00504aefa9a4e854a9d32f1b2caa9be6cf5"
)

// answering is a transport that answers every request by itself.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// always answers every request with this body.
func always(contentType string, body []byte) answering {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, http.StatusOK, http.Header{"Content-Type": {contentType}}, body), nil
	}
}

func response(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

const binaryForm = "application/x-protobuf"

func newClient(t testing.TB, transport http.RoundTripper) *V5 {
	t.Helper()
	c, err := NewV5(Config{Key: testKey, UserAgent: "test/1", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const testKey = "AIzaSy-SECRET_0123456789"

// batchOf is the answer to a fetch of several lists.
func batchOf(t testing.TB, lists ...[]byte) []byte {
	t.Helper()
	var answer sbv5.BatchGetHashListsResponse
	for _, raw := range lists {
		list := new(sbv5.HashList)
		if err := proto.Unmarshal(raw, list); err != nil {
			t.Fatal(err)
		}
		answer.HashLists = append(answer.HashLists, list)
	}
	raw, err := proto.Marshal(&answer)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// zeroPrefix is asked for where it does not matter what is.
const zeroPrefix = lookup.Prefix("\x00\x00\x00\x00")

// fetch returns the updates of lists, in the order in which they are wanted. It
// fails the test if one is not given, or given twice.
func fetch(t testing.TB, c Client, wanted ...updater.Want) ([]*updater.Update, error) {
	t.Helper()
	updates := make([]*updater.Update, len(wanted))
	wait, err := c.Fetch(t.Context(), wanted, func(i int, u *updater.Update) {
		if updates[i] != nil {
			t.Errorf("list %s is given twice", wanted[i].List)
		}
		updates[i] = u
	})
	if err != nil {
		return nil, err
	}
	if slices.Contains(updates, nil) || wait != 0 {
		t.Errorf("updates %v, a minimum wait of %s for all lists", updates, wait)
	}
	return updates, nil
}

// added returns the number of additions.
func added(u *updater.Update) (n int) {
	for _, e := range u.Additions {
		n += e.Count
	}
	return n
}

// applied fetches se-4b from a server that answers raw, and applies it to old.
func applied(t *testing.T, raw string, old updater.List) (updater.List, *updater.Update) {
	t.Helper()
	c := newClient(t, always(binaryForm, unhex(t, raw)))
	updates, err := fetch(t, c, updater.Want{List: "se-4b", Version: old.Version})
	if err != nil {
		t.Fatal(err)
	}
	l, changed, err := updater.Apply(old, updates[0], 1000)
	if err != nil || !changed {
		t.Fatalf("changed: %t, %v", changed, err)
	}
	return l, updates[0]
}

func TestListsOnTheWire(t *testing.T) {
	full, update := applied(t, wireFull, updater.List{Name: "se-4b"})
	checkList(t, full, "0102", "1d32c508291bc542f7a502e5", "d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf")
	if update.Partial || update.MinimumWait != 30*time.Minute {
		t.Errorf("partial: %t, minimum wait %s", update.Partial, update.MinimumWait)
	}
	partial, update := applied(t, wirePartial, full)
	checkList(t, partial, "0103", "1d32c50888981e62f7a502e5", "4331164ec13c31b2764ff32a04eab00504aefa9a4e854a9d32f1b2caa9be6cf5")
	if !update.Partial || update.Removals.Count != 1 || added(update) != 1 || update.MinimumWait != 5*time.Minute {
		t.Errorf("got %+v", update)
	}
	checkList(t, full, "0102", "1d32c508291bc542f7a502e5", "d1099a04a9fd4f1ed0cd830fb388d03faa04cb1f0cb5819b9ecb84ec6e95bbbf")
}

func checkList(t *testing.T, l updater.List, version, entries, checksum string) {
	t.Helper()
	raw, err := io.ReadAll(l.Set.Reader())
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(raw); got != entries {
		t.Errorf("entries %s, want %s", got, entries)
	}
	if got := hex.EncodeToString(l.Version); got != version {
		t.Errorf("version %s, want %s", got, version)
	}
	if got := hex.EncodeToString(l.Checksum[:]); got != checksum {
		t.Errorf("checksum %s, want %s", got, checksum)
	}
}

func TestSearchRequestOnTheWire(t *testing.T) {
	var want sbv5.SearchHashesRequest
	if err := proto.Unmarshal(unhex(t, wireSearchRequest), &want); err != nil {
		t.Fatal(err)
	}
	var asked []string
	c := newClient(t, answering(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.Query()["hashPrefixes"]
		return always(binaryForm, unhex(t, wireNothingFound))(r)
	}))
	if _, err := c.Search(t.Context(), []lookup.Prefix{lookup.Prefix(want.HashPrefixes[0])}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []string{"HTLFCA=="}) {
		t.Errorf("asked for %q", asked)
	}
}

func TestSearchAnswersOnTheWire(t *testing.T) {
	found := lookup.ThreatHash{
		Hash:    lookup.FullHash(unhex(t, "1d32c5084a360e58f1b87109637a6810acad97a861a7769e8f1841410d2a960c")),
		Threats: lookup.Threats(0).With(lookup.SocialEngineering),
		TTL:     5 * time.Minute,
	}
	tests := []struct {
		name, wire string
		want       []lookup.ThreatHash
	}{
		{"nothing found", wireNothingFound, nil},
		{"b.example.com/ is social engineering", wireFound, []lookup.ThreatHash{found}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t, always(binaryForm, unhex(t, test.wire)))
			got, err := c.Search(t.Context(), []lookup.Prefix{"\x1d\x32\xc5\x08"})
			if err != nil || got.TTL != 5*time.Minute || !slices.Equal(got.Threats, test.want) {
				t.Errorf("got %v, %v, want %v for 5 min", got, err, test.want)
			}
		})
	}
}
