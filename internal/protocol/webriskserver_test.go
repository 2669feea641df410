package protocol

import (
	"context"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// riskServer returns a server that has two lists, one of mixed lengths.
func riskServer(t *testing.T) *protocoltest.Server {
	s := protocoltest.New(t)
	s.SetKey(testKey)
	s.Publish("se-4b", [][]byte{{0, 0, 0, 0}, {0, 0, 0, 1}, []byte(secretPrefix), {0xfb, 0xef, 0xfe, 0, 7}})
	s.Publish("se-ext-4b", [][]byte{{9, 9, 9, 9}})
	return s
}

// A server that breaks the order of its schema breaks nothing else.
func TestRawHashesOutOfOrderMakeTheSameList(t *testing.T) {
	s := riskServer(t)
	s.Break("computeDiff", 1, protocoltest.Fault{UnsortedRaw: true})
	if err := firstFetchError(t.Context(), newWebRisk(t, s, "se-4b")); err != nil {
		t.Error(err)
	}
}

// riskFaults calls try for each fault of lists and of searches.
func riskFaults(t *testing.T, try func(t *testing.T, method string, f protocoltest.Fault, ask func(context.Context, *WebRisk) error)) {
	for name, f := range protocoltest.ListFaultsWebRisk() {
		t.Run("lists, "+name, func(t *testing.T) { try(t, "computeDiff", f, firstFetchError) })
	}
	for name, f := range protocoltest.SearchFaultsWebRisk() {
		t.Run("search, "+name, func(t *testing.T) {
			try(t, "searchOne", f, func(ctx context.Context, c *WebRisk) error {
				if err := firstFetchError(ctx, c); err != nil { // only entries of lists may be asked for
					return err
				}
				return searchError(ctx, c)
			})
		})
	}
}

// firstFetchError fetches se-4b for the first time, and returns what is wrong
// with the answer or with the list.
func firstFetchError(ctx context.Context, c *WebRisk) (broken error) {
	_, err := c.Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) {
		_, _, broken = updater.Apply(updater.List{Name: "se-4b"}, u, 1000)
	})
	if err != nil {
		return err
	}
	return broken
}

func TestEveryFaultOfWebRiskIsAnErrorWithoutSecretsOverASocket(t *testing.T) {
	testkit.Long(t)
	riskFaults(t, func(t *testing.T, method string, f protocoltest.Fault, ask func(context.Context, *WebRisk) error) {
		s := riskServer(t)
		s.Break(method, 1, f)
		socket := httptest.NewServer(s)
		defer socket.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if f.Delay > 0 {
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		err := ask(ctx, riskClientOf(t, Config{Endpoint: socket.URL, Key: testKey}))
		if err == nil {
			t.Error("no error")
		}
		checkSecrets(t, err)
	})
}

// riskClientOf returns a client with the transport of production.
func riskClientOf(t *testing.T, cfg Config) *WebRisk {
	t.Helper()
	cfg.UserAgent = "test/1"
	c, err := NewWebRisk(cfg, []string{"se-4b", "se-ext-4b"})
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Transport.(*http.Transport).Proxy = nil // whatever the environment says
	t.Cleanup(c.Close)
	return c
}

// Over a socket an answer has a Date. In both forms, by a key and by a token, the
// lives and waits are those that the server meant.
func TestWebRiskOverASocket(t *testing.T) {
	for name, form := range map[string]struct{ json, bearer bool }{"protobuf, key": {false, false}, "JSON, token": {true, true}} {
		t.Run(name, func(t *testing.T) {
			s := riskServer(t)
			s.AnswerJSON(form.json)
			if form.bearer {
				s.SetToken(testKey)
			}
			s.SetMinimumWait("se-ext-4b", time.Hour)
			s.SetCacheDuration(10 * time.Minute)
			s.SetNegativeCacheDuration(20 * time.Minute)
			s.AddExtendedThreat("evil.example.com/")
			full := lookup.FullHash(sha256Of(hex.EncodeToString([]byte("evil.example.com/"))))
			s.Publish("se-ext-4b", [][]byte{full[:6]})
			socket := httptest.NewServer(s)
			defer socket.Close()
			c := riskClientOf(t, Config{Endpoint: socket.URL, Key: testKey, Bearer: form.bearer})
			updates, err := fetch(t, c, updater.Want{List: "se-ext-4b"})
			if err != nil {
				t.Fatal(err)
			}
			l, _, err := updater.Apply(updater.List{Name: "se-ext-4b"}, updates[0], 1000)
			if err != nil || l.Set.Len() != 1 || !near(updates[0].MinimumWait, time.Hour) {
				t.Errorf("%v, wait %s, %v", l, updates[0].MinimumWait, err)
			}
			got, err := c.Search(t.Context(), []lookup.Prefix{lookup.Prefix(full[:6])})
			if err != nil || !near(got.TTL, 20*time.Minute) || len(got.Threats) != 1 || !near(got.Threats[0].TTL, 10*time.Minute) ||
				got.Threats[0].Hash != full || got.Threats[0].Threats != lookup.Threats(0).With(lookup.SocialEngineering) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// near reports whether a duration is the wanted one, or up to a minute shorter.
func near(got, want time.Duration) bool { return got <= want && got > want-time.Minute }
