package relay

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// setOf returns the set of entries, which it sorts.
func setOf(t testing.TB, entries ...string) *prefixset.Set {
	t.Helper()
	slices.Sort(entries)
	b := prefixset.NewBuilder(0)
	for _, e := range slices.Compact(entries) {
		if err := b.Add([]byte(e), len(e)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Set()
}

// randomEntry returns one of few entries, so that they come back.
func randomEntry(rng *rand.Rand, width int) string {
	sum := sha256.Sum256([]byte{byte(rng.IntN(40)), byte(rng.IntN(256))})
	return string(sum[:width])
}

func newLists(t testing.TB, dir string) *Lists {
	t.Helper()
	l, err := NewLists(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func publish(t testing.TB, l *Lists, name string, set *prefixset.Set) {
	t.Helper()
	if err := l.Publish([]lookup.List{{Name: name, Set: set}}); err != nil {
		t.Fatal(err)
	}
}

// transport answers the requests of a client from lists, as a server would.
type transport struct {
	lists   *Lists
	maxDB   int
	stored  bool // as a client that takes entries as they are stored
	wait    time.Duration
	answers []Answer // to the last request
}

// RoundTrip implements http.RoundTripper.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var q query
	for _, text := range r.URL.Query()["version"] {
		v, err := base64.URLEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		q.versions = append(q.versions, v)
	}
	name, single := strings.CutPrefix(r.URL.Path, "/v5/hashList/")
	names := r.URL.Query()["names"]
	if single {
		names = []string{name}
	}
	q.names = names
	versions, bad := versionsOf(q)
	if bad != nil {
		return nil, errors.New(bad.message)
	}
	tr.answers = nil
	for _, name := range names {
		get := tr.lists.Get
		if tr.stored {
			get = tr.lists.GetStored
		}
		a, err := get(r.Context(), netip.Addr{}, name, versions[name], tr.maxDB)
		if err != nil {
			return nil, err
		}
		tr.answers = append(tr.answers, a)
	}
	body := BatchBody(tr.answers, tr.wait)
	if single {
		body = tr.answers[0].Body(tr.wait)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Request: r,
		Body: io.NopCloser(&body), ContentLength: lengthOf(body),
	}, nil
}

func lengthOf(body net.Buffers) (n int64) {
	for _, b := range body {
		n += int64(len(b))
	}
	return n
}

// client is a real client with the lists that it holds.
type client struct {
	*transport
	*protocol.V5
	held map[string]updater.List
}

func newClient(t testing.TB, l *Lists) *client {
	t.Helper()
	tr := &transport{lists: l, wait: time.Minute}
	c, err := protocol.NewV5(protocol.Config{UserAgent: "test/1", Transport: tr})
	if err != nil {
		t.Fatal(err)
	}
	return &client{tr, c, make(map[string]updater.List)}
}

// fetch fetches the lists once and applies the updates. It returns the minimum wait of the
// last of them.
func (c *client) fetch(t testing.TB, names ...string) (wait time.Duration) {
	t.Helper()
	var wanted []updater.Want
	for _, name := range names {
		wanted = append(wanted, updater.Want{List: name, Version: c.held[name].Version})
	}
	updates := make([]*updater.Update, len(names))
	_, err := c.Fetch(context.Background(), wanted, func(i int, u *updater.Update) {
		updates[i] = u
		old := c.held[names[i]]
		if !u.Partial {
			old = updater.List{}
		}
		old.Name = names[i]
		before := 0
		if old.Set != nil {
			before = old.Set.Len()
		}
		list, _, err := updater.Apply(old, u, 1<<24)
		if err != nil {
			t.Fatalf("list %s: %v", names[i], err)
		}
		if c.maxDB > 0 && list.Set.Len() > c.maxDB {
			t.Fatalf("list %s: %d entries, asked for %d at most (partial: %t, before: %d)", names[i], list.Set.Len(), c.maxDB, u.Partial, before)
		}
		c.held[names[i]] = list
	})
	if err != nil {
		t.Fatal(err)
	}
	return updates[len(updates)-1].MinimumWait
}
