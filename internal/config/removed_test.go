package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestPropertiesOfEarlierVersionsAreRefusedWithWhatToWrite(t *testing.T) {
	tests := map[string]struct{ line, advice string }{
		"endpoint_ca":   {"endpoint_ca ca.pem", "endpoint_ca is no longer a property: write tls CA, or with endpoint_cert, too, tls CERT KEY CA"},
		"endpoint_cert": {"endpoint_cert cert.pem key.pem", "endpoint_cert is no longer a property: write tls CERT KEY, or with endpoint_ca, too, tls CERT KEY CA"},
		"frames":        {"frames pass", "frames is no longer a property: remove the line: threats that are marked FRAME_ONLY block, and allow HOST"},
		"test":          {"test blocked.example", "test is no longer a property: write block FILE, and on lines of FILE the name, and *. before it for the names below"},
		"prefixes":      {"prefixes stored", "prefixes is no longer a property: remove the line: the server gets 4 bytes of a hash"},
	}
	if a, b := slices.Sorted(maps.Keys(tests)), slices.Sorted(maps.Keys(removed)); !slices.Equal(a, b) {
		t.Errorf("Expected a case for each of %q, got %q", b, a)
	}
	for word, tt := range tests {
		if _, ok := properties[word]; ok {
			t.Errorf("%s is a property", word)
		}
		if _, err := stanza(t, "safebrowsing {\napi_key K\n"+tt.line+"\n}"); err == nil || !strings.Contains(err.Error(), tt.advice) || !strings.Contains(err.Error(), ":3") {
			t.Errorf("%s: Expected an error about line 3 with %q, got %v", tt.line, tt.advice, err)
		}
	}
}
