package relay

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// BenchmarkCachedSearch answers a search from the cache, without a socket.
func BenchmarkCachedSearch(b *testing.B) {
	w := newWorld(b)
	w.start()
	b.Cleanup(w.relay.Close)
	testkit.Until(b, "the lists", w.relay.Ready)
	target := "/v5/hashes:search?alt=proto&hashPrefixes=" + param(prefixOf("evil.example/", 4))
	r := requestOf(b, target, "192.0.2.1:4000", "")
	if code := recorded(w.relay, r).Code; code != http.StatusOK {
		b.Fatalf("status %d", code)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.relay.ServeHTTP(httptest.NewRecorder(), r)
	}
}
