package protocol

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// riskClients are a client of Web Risk with an API key and one with an access token.
func riskClients(t *testing.T, cfg Config) (clients []*WebRisk) {
	t.Helper()
	cfg.UserAgent = "test/1"
	for _, cfg.Bearer = range []bool{false, true} {
		c, err := NewWebRisk(cfg, WebRiskLists())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	return clients
}

// riskFetchError fetches a list while version 1 is held, and returns what is wrong
// with the answer or with the list.
func riskFetchError(ctx context.Context, c *WebRisk) (broken error) {
	_, err := c.Fetch(ctx, []updater.Want{{List: "se-4b", Version: []byte(secretPrefix)}}, func(_ int, u *updater.Update) {
		_, _, broken = updater.Apply(updater.List{Name: "se-4b"}, u, 1000)
	})
	return cmp.Or(err, broken)
}

// The errors of Web Risk tell neither what was asked for nor the key, whatever the
// server answers.
func TestWebRiskErrorsHaveNoSecrets(t *testing.T) {
	for name, answer := range map[string]answering{
		"status 400": func(r *http.Request) (*http.Response, error) {
			return response(r, 400, nil, []byte(`{"error":{"message":"key `+testKey+`"}}`)), nil
		},
		"status 503":     func(r *http.Request) (*http.Response, error) { return response(r, 503, nil, nil), nil },
		"no connection":  func(r *http.Request) (*http.Response, error) { return nil, fmt.Errorf("%s by %s", r.URL.Host, testKey) },
		"no message":     always(binaryForm, []byte{0xff}),
		"an empty list":  always(binaryForm, nil),
		"another type":   always("text/"+testKey, nil),
		"a short answer": always(binaryForm, []byte{0x0a, 0x04, 0x12, 0x02, 'a', 'b'}),
	} {
		for _, c := range riskClients(t, Config{Key: testKey, Transport: answer}) {
			fetched, searched := riskFetchError(t.Context(), c), searchError(t.Context(), c)
			if fetched == nil || searched == nil && name != "an empty list" {
				t.Errorf("%s: no error", name)
			}
			checkSecrets(t, fetched)
			checkSecrets(t, searched)
			if _, err := c.Search(t.Context(), []lookup.Prefix{secretPrefix, zeroPrefix}); err == nil {
				t.Error("two prefixes are taken")
			} else {
				checkSecrets(t, err)
			}
		}
	}
}
