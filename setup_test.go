package safebrowsing

import "testing"

// A block of before must not hand its queries to one that may have other rules for these clients.
func TestOnlyOneBlockTakesAPlace(t *testing.T) {
	block := func(view, address string, keys ...string) *SafeBrowsing {
		return &SafeBrowsing{place: place{keys, []string{address}, view}}
	}
	const tls, quic, h3 = "tls://.:853", "quic://.:853", "https3://.:443"
	before := block("", "::1", tls, quic)
	for name, tc := range map[string]struct {
		later []*SafeBrowsing
		want  int // in later; -1: none
	}{
		"the same":               {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::1", tls, quic)}, 1},
		"another address":        {[]*SafeBrowsing{block("", "::2", tls, quic), block("", "::2", h3)}, 0},
		"one key more":           {[]*SafeBrowsing{block("", "::1", "dns://.:53"), block("", "::1", tls, quic, h3)}, 1},
		"two at other addresses": {[]*SafeBrowsing{block("", "::2", quic), block("", "::3", quic)}, -1},
		"over TLS only":          {[]*SafeBrowsing{block("", "::1", tls)}, -1},
		"another view":           {[]*SafeBrowsing{block("kids", "::1", tls, quic)}, -1},
		"another zone":           {[]*SafeBrowsing{block("", "::1", "quic://a.:853")}, -1},
	} {
		var want *SafeBrowsing
		if tc.want >= 0 {
			want = tc.later[tc.want]
		}
		if got := before.place.successor(tc.later); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
