package config

import (
	"strings"
	"testing"
)

func TestPropertiesOfEarlierVersionsAreRefusedWithWhatToWrite(t *testing.T) {
	for word := range removed {
		if _, err := stanza(t, "safebrowsing {\napi_key K\n"+word+" x\n}"); err == nil || !strings.Contains(err.Error(), word+" is no longer a property: ") || !strings.Contains(err.Error(), ":3") {
			t.Errorf("%s: Expected an error about line 3 that says what to write, got %v", word, err)
		}
	}
}
